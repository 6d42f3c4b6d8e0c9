// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What each wait during start-up asks at each turn: whether its start has ended elsewhere. Known to
// transports, which wait, and answered by the bootstrap, which hears of it.
#pragma once

#include <collx/core/clock.hpp>

COLLX_BEGIN_NAMESPACE

class start_news {
public:
    static constexpr std::int64_t look_every_ns = 10'000'000;
    // Throws what ended the start. Waits for nothing; may be called as often as one likes.
    virtual void look() = 0;
    // Whether look() has thrown: what is thrown then is the verdict, and no observation of the one who waits.
    virtual bool has_spoken() const = 0;

protected:
    ~start_news() = default;
};

namespace detail {

// For waits in the kernel: to the deadline, or to the next look.
inline deadline next_look(const start_news* news, const deadline& until) {
    if (news == nullptr) return until;
    const deadline soon = deadline::in_ns(start_news::look_every_ns);
    return soon.at_ns < until.at_ns ? soon : until;
}

} // namespace detail

COLLX_END_NAMESPACE
