// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs cases that mostly wait at the same time, so that their limits can be long enough for a busy machine.
#pragma once

#include <deque>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace collx_test {

// Each case starts when it is added. The destructor waits for all of them; an exception of one fails the test case.
class side_by_side {
public:
    side_by_side() = default;
    side_by_side(const side_by_side&) = delete;
    template <class F>
    void add(F f) {
        auto& result = thrown_.emplace_back();
        cases_.emplace_back([f, &result] {
            try {
                f();
            } catch (const std::exception& e) {
                result = e.what();
            }
        });
    }
    ~side_by_side() {
        for (auto& c : cases_) c.join();
        for (const auto& text : thrown_) CHECK(text == "");
    }

private:
    std::deque<std::string> thrown_;
    std::vector<std::thread> cases_;
};

} // namespace collx_test
