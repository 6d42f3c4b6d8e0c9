// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One picture per algorithm, drawn from its recorded steps: the gallery of the site. Algorithms that the verifier
// refuses are not drawn.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <collx/algo/algorithms.hpp>
#include <collx/sched/render.hpp>
#include <collx/sched/verify.hpp>

namespace collx::tools {

inline constexpr int picture_ranks = 4;

struct picture {
    std::string file, svg;
};

/// All algorithms of all collectives.
inline std::vector<picture> pictures_of_algorithms() {
    std::vector<picture> all;
    algo::for_each_algorithm([&](auto a) {
        const sched::schedule s = sched::record_all(a, picture_ranks);
        const std::string name = std::string(name_of(a.op)) + ", " + a.name;
        if (sched::verify(s).ok())
            all.push_back({std::string(name_of(a.op)) + "." + a.name + ".svg",
                           sched::to_svg(s, name + ", " + std::to_string(picture_ranks) + " ranks")});
    });
    return all;
}

/// Writes them into an existing folder. Returns the first file that could not be written, or an empty string.
inline std::string write_pictures(const std::string& folder) {
    for (const picture& p : pictures_of_algorithms()) {
        const std::string path = folder + "/" + p.file;
        std::FILE* file = std::fopen(path.c_str(), "w");
        if (file == nullptr) return path;
        const bool is_written = std::fputs(p.svg.c_str(), file) >= 0;
        if ((std::fclose(file) != 0) || !is_written) return path;
    }
    return {};
}

} // namespace collx::tools
