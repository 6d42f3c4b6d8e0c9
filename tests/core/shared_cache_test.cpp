// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <collx/core/shared_cache.hpp>

#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "support/skip.hpp"

TEST_CASE("the shared cache is as large as the system says") {
    std::size_t kib = 0;
    for (int k = 0; k < 8; ++k) {
        const std::string cache = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(k);
        std::ifstream size(cache + "/size"), type(cache + "/type");
        std::string what;
        std::size_t n = 0;
        if (size >> n && type >> what && what != "Instruction") kib = n; // the last level is the last entry
    }
    if (kib == 0 || collx::detail::shared_cache_bytes == 0)
        return collx_test::skip("nothing is said about caches here");
    CHECK(collx::detail::shared_cache_bytes == kib * 1024);
    CHECK(collx::detail::shared_cache_bytes == collx::detail::ask_for_shared_cache());
}
