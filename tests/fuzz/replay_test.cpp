// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs every file of the committed corpora through its fuzz target, also with changed bytes.
//
// collx-test: timeout=240
#include "fuzz/targets.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <catch2/catch.hpp>

TEST_CASE("the corpora run through their targets") {
    const auto corpus = std::filesystem::path(COLLX_SOURCE_DIR "/tests/fuzz/corpus");
    std::mt19937 random(20261121);
    for (const auto& t : collx_fuzz::targets) {
        std::vector<std::string> files;
        for (const auto& entry : std::filesystem::directory_iterator(corpus / t.name))
            files.push_back(entry.path().string());
        std::sort(files.begin(), files.end());
        CHECK(files.size() >= 3);
        for (const auto& file : files) {
            std::ifstream f(file, std::ios::binary);
            std::string bytes{std::istreambuf_iterator<char>(f), {}};
            const std::string_view name = t.name; // some make real connections
            const int mutants = name == "store" ? 5 : name == "windows" ? 15 : 50;
            for (int i = 0; i <= mutants; ++i) {
                t.run({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()});
                if (bytes.empty()) break;
                bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
            }
        }
    }
}
