// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The records of a job's calls as files: reads a directory, writes one trace.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <collx/core/regular_file.hpp>
#include <collx/job/recorded_calls.hpp>

namespace collx::tools {

/// Files of records, and when each was written.
using record_file_list = std::map<std::string, std::filesystem::file_time_type>;
/// Those in a directory; none if it cannot be read.
inline record_file_list record_files(const std::string& directory) {
    record_file_list files;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(directory, none))
        if (entry.path().extension() == ".calls") files[entry.path().string()] = entry.last_write_time(none);
    return files;
}
/// Their paths, but for those that are still as in `older`. Errors: std::runtime_error if there is no such directory.
inline std::vector<std::string> record_paths(const std::string& directory, const record_file_list& older = {}) {
    std::error_code reason;
    std::filesystem::directory_iterator(directory, reason);
    if (reason) throw std::runtime_error(directory + ": " + reason.message());
    std::vector<std::string> paths;
    for (const auto& [path, written] : record_files(directory))
        if (const auto before = older.find(path); before == older.end() || before->second != written)
            paths.push_back(path);
    return paths;
}
/// Whether a directory holds files of records.
inline bool has_call_records(const std::string& directory) { return !record_paths(directory).empty(); }
/// Reads them in the order of their names, but for those of `older`. A file that cannot be read hides no other: `tool`
/// names it on standard error. Errors: std::runtime_error if there is none, or none that can be read.
inline std::vector<recorded_calls> read_call_records(const std::string& directory, const char* tool,
                                                     const record_file_list& older = {}) {
    const std::vector<std::string> paths = record_paths(directory, older);
    if (paths.empty())
        throw std::runtime_error(directory +
                                 " has no records of calls; run the ranks with COLLX_RECORD_DIR=" + directory + ".");
    std::vector<recorded_calls> all;
    for (const auto& path : paths) try {
            std::string bytes;
            if (const char* why = collx::detail::read_regular_file(path.c_str(), SIZE_MAX, bytes))
                throw std::runtime_error(why);
            all.push_back(read_recorded_calls(bytes.data(), bytes.size()));
        } catch (const std::exception& e) {
            std::fprintf(stderr, "%s: %s: %s\n", tool, path.c_str(), e.what());
        }
    if (all.empty())
        throw std::runtime_error("no file of records in " + directory + " can be read; the lines above say why.");
    return all;
}

/// An output that cannot be written: exit code 1, where wrong use has 2.
struct unwritable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Writes the calls as a trace. beside: another trace whose events are added, or empty.
inline void write_trace(const std::vector<recorded_calls>& all, const std::string& path,
                        const std::string& beside = "") {
    std::string text = to_chrome_trace(all);
    if (!beside.empty()) {
        std::error_code none;
        if (!std::filesystem::exists(beside, none) || std::filesystem::is_directory(beside, none))
            throw std::runtime_error(beside + " is no file that can be read.");
        std::ifstream other(beside);
        const auto read = nlohmann::json::parse(other, nullptr, false);
        if (!read.is_object() || !read.contains("traceEvents") || !read["traceEvents"].is_array())
            throw std::runtime_error(beside + " is no trace; collx_sim --trace writes one.");
        auto both = nlohmann::json::parse(text);
        for (const auto& event : read["traceEvents"]) both["traceEvents"].push_back(event);
        text = both.dump();
    }
    std::ofstream file(path);
    file << text;
    if (!file.flush()) throw unwritable("cannot write " + path + ".");
}

} // namespace collx::tools
