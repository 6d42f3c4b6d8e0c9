// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of a group that follow one another and run one kernel become one launch of it. What separates them: another
// kernel, no room among a kernel's arguments, or memory that one of them writes and another one uses (inside a launch
// blocks go from call to call by themselves, so no call may need another's result). Each rank decides for itself: the
// order is the same, and a rank's blocks wait for the peers' calls, not for their launches. It knows no collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <collx/comm/gpu/group.hpp>
#include <collx/core/pointers.hpp>
#include <collx/exec/device/group.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// Memory of this rank that a call reads, or reads and writes.
struct used_memory {
    std::uintptr_t begin = 0, end = 0;
    bool is_written = false;

    bool is_needed_by(const used_memory& o) const {
        return (is_written || o.is_written) && begin < o.end && o.begin < end;
    }
};
// Of a view whose elements are nobody knows where: all memory.
template <class View>
used_memory memory_of(const View& v, bool is_written) {
    if (v.size() == 0) return {};
    if constexpr (requires { v.data(); }) {
        const auto at = reinterpret_cast<std::uintptr_t>(v.data());
        return {at, at + v.size() * sizeof(typename View::value_type), is_written};
    } else {
        return {0, UINTPTR_MAX, is_written};
    }
}

// The error of one call of a group, or of several, with their numbers.
inline error in_group(const error& e, unsigned first, unsigned last) {
    const char* text = e.what() + std::strlen("collx: ");
    if (e.rank() >= 0) text = std::strchr(text, ':') + 2; // "rank 3: "
    char which[40];
    if (first == last) std::snprintf(which, sizeof which, "call %u of the group", first);
    else std::snprintf(which, sizeof which, "calls %u to %u of the group", first, last);
    char all[480];
    std::snprintf(all, sizeof all, "%s: %s", which, text);
    error named(e.code(), e.rank(), e.peer(), all, "");
    named.set_sequence(e.sequence());
    return named;
}

class kernel_batch {
public:
    // Whether the next call has to wait in its stream for what came before the group.
    bool is_first() const { return number_ <= 1; }
    void begin_call(unsigned number) { number_ = number; }

    // done: what is to happen once the kernel is in its stream.
    template <class Team, class Call, class Done>
    void add(Team& team, Call call, const device::fused_options& o, const used_memory& in, const used_memory& out,
             const Done& done) {
        using open = kernel_of<Team, Call, Done>;
        bool fits = open_ != nullptr && open_->kind == open::kind_of() &&
                    static_cast<open*>(open_.get())->calls.size() < device::call_array<Call>::most;
        for (const used_memory& u : used_) fits = fits && !u.is_needed_by(in) && !u.is_needed_by(out);
        if (!fits) {
            flush();
            open_ = make_sole<open>(team, o, done, number_);
        }
        call.args.call = static_cast<std::uint16_t>(number_);
        static_cast<open*>(open_.get())->calls.add(call);
        open_->last = number_;
        used_.push_back(in), used_.push_back(out);
    }
    // What ends the group: of the call that was to be added, or of those that were to be launched before it.
    [[noreturn]] void end(const error& e) {
        if (has_named_) raise(e);
        flush();
        raise(in_group(e, number_, number_));
    }
    // Launches what is open. Errors name the calls.
    void flush() {
        used_.clear();
        const sole_ptr<kernel> k = std::exchange(open_, sole_ptr<kernel>());
        if (k == nullptr) return;
        try {
            k->launch();
        } catch (const error& e) {
            has_named_ = true;
            raise(in_group(e, k->first, k->last));
        }
    }

private:
    struct kernel {
        kernel(const void* k, unsigned number) : kind(k), first(number), last(number) {}
        virtual ~kernel() = default;
        virtual void launch() = 0;
        const void* kind;
        unsigned first, last;
    };
    template <class Team, class Call, class Done>
    struct kernel_of final : kernel {
        kernel_of(Team& t, const device::fused_options& x, const Done& d, unsigned number)
            : kernel(kind_of(), number), team(t), o(x), done(d) {}
        static const void* kind_of() {
            static constexpr char kind = 0;
            return &kind;
        }
        void launch() override {
            team.run_array(calls, o);
            done();
        }
        Team& team;
        device::fused_options o;
        Done done;
        device::call_array<Call> calls;
    };

    sole_ptr<kernel> open_;
    std::vector<used_memory> used_; // by the open kernel's calls
    unsigned number_ = 0;           // of the call that is added
    bool has_named_ = false;
};

} // namespace detail
COLLX_END_NAMESPACE
