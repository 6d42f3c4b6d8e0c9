// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of several kernels in one launch: as call_array, but the compiler knows only the kinds of the calls. Their
// number and order are known when they are made. Each call is the arguments that its kernel would have had, packed one
// after the other. A block asks each for its kind and runs it as if it had its own launch. A kernel has the registers
// of the widest kind; a block of 512 threads with a multiprocessor for itself has enough of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include <collx/exec/device/group.hpp>

COLLX_BEGIN_NAMESPACE
namespace device {

// Kinds of calls, each once.
template <class... Calls>
struct call_kinds {
    template <class Call>
    static constexpr bool has = (std::is_same_v<Call, Calls> || ...);
    // Appends the kinds of another list that are not in this one.
    template <class Call, class... Rest>
    static constexpr auto with(call_kinds<Call, Rest...>) {
        if constexpr (has<Call>) return with(call_kinds<Rest...>());
        else return call_kinds<Calls..., Call>::with(call_kinds<Rest...>());
    }
    static constexpr auto with(call_kinds<>) { return call_kinds(); }
};

// For a rank with its own launch.
template <class... Calls>
class call_mix {
public:
    // What a launch copies, however few calls there are; larger only where one call needs more.
    static constexpr std::size_t largest = [] {
        std::size_t n = 16 * 1024;
        ((n = sizeof(Calls::args) > n ? sizeof(Calls::args) : n), ...);
        return n;
    }();
    static constexpr int most = 32;
    int lanes = 1, first_rank = 0;

    COLLX_HD int size() const { return size_; }
    COLLX_HD int kind(int i) const { return kind_[i]; }
    template <class Call>
    COLLX_HD const decltype(Call::args)& at(int i) const {
        return *reinterpret_cast<const decltype(Call::args)*>(args_ + at_[i]);
    }
    template <class Call>
    bool has_room() const {
        return size_ < most && end_ + sizeof(Call::args) <= largest;
    }
    template <class Call>
    void add(const Call& call) {
        static_assert(call_kinds<Calls...>::template has<Call> && Call::groups == 1);
        static_assert(sizeof(call_mix) <= 32764, "collx: views and operators must fit a kernel's parameters");
        kind_[size_] = static_cast<std::uint8_t>(index_of<Call>());
        at_[size_++] = static_cast<std::uint32_t>(end_);
        auto* a = ::new (static_cast<void*>(args_ + end_)) decltype(Call::args)(call.args);
        a->is_one_launch = false; // later calls of this launch must wait for neighbours that still read
        lanes = a->lanes > lanes ? a->lanes : lanes;
        end_ = (end_ + sizeof(call.args) + alignment - 1) / alignment * alignment;
    }

private:
    template <class Call>
    static constexpr int index_of() {
        const bool is_it[] = {std::is_same_v<Call, Calls>...};
        int k = 0;
        while (!is_it[k]) ++k;
        return k;
    }
    static constexpr std::size_t alignment = [] {
        std::size_t n = 1;
        ((n = alignof(decltype(Calls::args)) > n ? alignof(decltype(Calls::args)) : n), ...);
        return n;
    }();

    int size_ = 0;
    std::uint8_t kind_[most] = {};
    std::uint32_t at_[most] = {};
    std::size_t end_ = 0;
    alignas(alignment) std::byte args_[largest];
};

// All threads of the block call it, and take the same branches.
template <class Env, class... Calls>
COLLX_HD void run_calls(Env& env, const call_mix<Calls...>& l, block_state& shared, int rank, int lane) {
    COLLX_ROLLED
    for (int i = 0; i < l.size(); ++i) {
        const int kind = l.kind(i);
        int k = 0;
        bool goes_on = true;
        (void)((kind == k++ && (goes_on = run_call<Calls>(env, l.template at<Calls>(i), shared, rank, lane), true)) ||
               ...);
        if (!goes_on) return;
    }
}

} // namespace device
COLLX_END_NAMESPACE
