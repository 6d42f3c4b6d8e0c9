// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_facts: what each algorithm costs, counted from its steps. `collx_facts` prints the tables of
// docs/algorithms.md, `collx_facts 5` the same for 5 ranks, `collx_facts --choices` which algorithm runs by default,
// `collx_facts --verbs` the table of docs/verbs.md, `collx_facts --draw FOLDER` writes a picture of each algorithm.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "support/choices_table.hpp"
#include "support/facts_table.hpp"
#include "support/pictures.hpp"
#include "support/standard_output.hpp"
#include "support/verbs_table.hpp"

int main(int argc, char** argv) {
    collx::tools::open_missing_standard_descriptors();
    if (argc == 2 && std::strcmp(argv[1], "--verbs") == 0) {
        std::fputs(collx::tools::verbs_table().c_str(), stdout);
        return collx::tools::ended("collx_facts", 0);
    }
    if (argc == 2 && std::strcmp(argv[1], "--choices") == 0) {
        std::fputs(collx::tools::choices_tables().c_str(), stdout);
        return collx::tools::ended("collx_facts", 0);
    }
    if (argc == 3 && std::strcmp(argv[1], "--draw") == 0 && *argv[2] != '\0') {
        const std::string failed = collx::tools::write_pictures(argv[2]);
        if (failed.empty()) return 0;
        std::fprintf(stderr, "collx_facts: cannot write %s: %s\n", failed.c_str(), std::strerror(errno));
        return 1;
    }
    constexpr const char* usage = "usage: collx_facts [ranks, 1 to 64 | --choices | --verbs | --draw FOLDER]\n"
                                  "Prints what each algorithm costs, counted from its steps: the tables of "
                                  "docs/algorithms.md, for so many ranks.\n"
                                  "--choices: which algorithm runs by default, also of docs/algorithms.md.\n"
                                  "--verbs: the table of docs/verbs.md.\n"
                                  "--draw: a picture of each algorithm for 4 ranks, as FOLDER/COLLECTIVE.NAME.svg.\n";
    if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
        std::fputs(usage, stdout);
        return collx::tools::ended("collx_facts", 0);
    }
    char* end = nullptr;
    const long n = argc > 1 ? std::strtol(argv[1], &end, 10) : collx::tools::facts_table_ranks;
    if (n < 1 || n > 64 || argc > 2 || (end != nullptr && *end != '\0')) {
        std::fputs(usage, stderr);
        return 2;
    }
    std::fputs(collx::tools::facts_tables(static_cast<int>(n)).c_str(), stdout);
    return collx::tools::ended("collx_facts", 0);
}
