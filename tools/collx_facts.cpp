// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_facts: what each algorithm costs, counted from its steps. `collx_facts` prints the tables of
// docs/algorithms.md, `collx_facts 5` the same for 5 ranks.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/facts_table.hpp"

int main(int argc, char** argv) {
    char* end = nullptr;
    const long n = argc > 1 ? std::strtol(argv[1], &end, 10) : collx::tools::facts_table_ranks;
    if (n < 1 || n > 64 || argc > 2 || (end != nullptr && *end != '\0')) {
        std::fprintf(stderr, "usage: collx_facts [ranks, 1 to 64]\n");
        return 2;
    }
    std::fputs(collx::tools::facts_tables(static_cast<int>(n)).c_str(), stdout);
}
