// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls that a group has collected and not made. A group that is destroyed with some reports it: results would be
// missing on this rank, and the other ranks would wait.
#pragma once

#include <cstddef>
#include <cstdio>
#include <utility>

#include <collx/core/pointers.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class unmade_calls {
public:
    unmade_calls() = default;
    unmade_calls(unmade_calls&& o) noexcept
        : core_(o.core_), end_(std::move(o.end_)), first_(o.first_), count_(std::exchange(o.count_, 0)) {}
    unmade_calls& operator=(unmade_calls&& o) noexcept {
        drop();
        core_ = o.core_;
        end_ = std::move(o.end_);
        first_ = o.first_;
        count_ = std::exchange(o.count_, 0);
        return *this;
    }
    ~unmade_calls() { drop(); }

    void add(communicator_core& c, const char* verb) {
        if (count_ == 0) {
            core_ = &c;
            end_ = c.watch_end();
            first_ = verb;
        }
        ++count_;
    }
    // The group launches them on `now`: they are none of these any more. Errors: invalid_argument where the program has
    // put another communicator in the place of the one that they were added for, whose ranks they name.
    void take(const communicator_core& now) {
        if (std::exchange(count_, 0) != 0 && (end_->has_come || core_ != &now)) [[unlikely]]
            fail(errc::invalid_argument, now.net.rank(), -1, "make the group again",
                 "a group's calls were added for another communicator, which this one has replaced since");
    }

private:
    void drop() noexcept {
        if (count_ != 0 && !end_->has_come) tell();
        count_ = 0;
    }
    // The other ranks wait for these calls; on a checked communicator they are notified at once.
    [[gnu::cold, gnu::noinline]] void tell() noexcept {
        const bool is_checked = core_->settings.checked != 0;
        char text[160];
        std::snprintf(text, sizeof text,
                      "a group was destroyed without launch(): none of its %zu calls was made, the first is %s", count_,
                      first_);
        if (core_->note_dropped(text,
                                is_checked ? "call launch(); checked, this ends the communicator" : "call launch()") &&
            is_checked) {
            const one_caller::alone here(core_->caller);
            core_->abandon();
        }
    }
    communicator_core* core_ = nullptr;
    counted_ptr<communicator_end> end_;
    const char* first_ = "";
    std::size_t count_ = 0;
};

} // namespace detail
COLLX_END_NAMESPACE
