// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first error of a rank in this test case: waits of other ranks may then never succeed.
#pragma once

#include <mutex>
#include <new>
#include <optional>
#include <string>

namespace collx_test {

// What a check has thrown, or what has left a rank's body. main() forgets it where a test case or a section of one
// begins: jobs of one case may run side by side, so none of them may forget the failure of another.
class first_error {
public:
    void keep(const char* text) {
        try {
            const std::lock_guard here(mutex_);
            if (!text_) text_ = text;
        } catch (const std::bad_alloc&) { // some tests take all memory away
        }
    }
    void forget() {
        const std::lock_guard here(mutex_);
        text_.reset();
    }
    std::optional<std::string> text() {
        const std::lock_guard here(mutex_);
        return text_;
    }

private:
    std::mutex mutex_;
    std::optional<std::string> text_;
};
inline first_error failure_of_a_rank;

} // namespace collx_test
