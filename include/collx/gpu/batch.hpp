// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Launches the calls of a group in few kernels, or keeps these kernels to be launched many times. Consecutive calls of
// one kernel share a launch; a group that names its kinds has one kernel for all. A new launch begins when a call needs
// another kernel, when the kernel's arguments have no room, or when one of two calls writes memory that the other uses
// (blocks move from call to call by themselves, so no call may need the result of another). Each rank decides by
// itself: the order of the calls is the same on all ranks, and a rank's blocks wait for the peers' calls, not for their
// launches. Knows no collective.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <collx/core/op.hpp>
#include <collx/core/pointers.hpp>
#include <collx/exec/device/call_mix.hpp>
#include <collx/gpu/group.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// A range of this rank's memory that a call reads, or reads and writes.
struct used_memory {
    std::uintptr_t begin = 0, end = 0;
    bool is_written = false;

    bool is_needed_by(const used_memory& o) const {
        return (is_written || o.is_written) && begin < o.end && o.begin < end;
    }
};
// The memory of a view; all memory if the view does not tell where its elements are.
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

// Whether an operator or a hook is large enough for a pointer, behind which it may read any memory. What the library
// knows of is not asked for its size: its wrappers hold others, and a number points nowhere.
template <class Op>
inline constexpr bool may_refer_v = !std::is_arithmetic_v<Op> && sizeof(Op) >= sizeof(void*);
template <class Scale>
inline constexpr bool may_refer_v<premultiplied_sum<Scale>> = may_refer_v<Scale>;
template <class Op>
inline constexpr bool may_refer_v<bare_op<Op>> = may_refer_v<Op>;
template <class Op>
inline constexpr bool may_refer_v<commutative_op<Op>> = may_refer_v<Op>;
template <class Op, class F>
inline constexpr bool may_refer_v<with_pre_op<Op, F>> = may_refer_v<Op> || may_refer_v<F>;
template <class Op, class F>
inline constexpr bool may_refer_v<with_post_op<Op, F>> = may_refer_v<Op> || may_refer_v<F>;

// What a call's operator reads.
template <class Protocol, int Groups, class Algorithm, class Types>
used_memory memory_of_operator(const device::fused_call<Protocol, Groups, Algorithm, Types>&) {
    if constexpr (Types::reduces)
        if (may_refer_v<typename Types::op_type>) return {0, UINTPTR_MAX, false};
    return {};
}

// The error `e` with the numbers of the calls that it concerns, `first` to `last`; 0: the group's messages.
inline error in_group(const error& e, unsigned first, unsigned last) {
    if (last == 0) return e;
    const char* text = e.what() + std::strlen("collx: ");
    if (e.rank() >= 0) text = std::strchr(text, ':') + 2; // "rank 3: "
    char which[60];
    if (first == last) std::snprintf(which, sizeof which, "call %u of the group", first);
    else if (first == 0) std::snprintf(which, sizeof which, "the messages and calls 1 to %u of the group", last);
    else std::snprintf(which, sizeof which, "calls %u to %u of the group", first, last);
    char all[480];
    std::snprintf(all, sizeof all, "%s: %s", which, text);
    error named(e.code(), e.rank(), e.peer(), all, "");
    named.set_sequence(e.sequence());
    return named;
}

// A kernel with calls of a group, ready for its launch.
struct grouped_kernel {
    virtual ~grouped_kernel() = default;
    // A kind is identified by an address.
    virtual bool has_room(const void* kind) const = 0;
    virtual bool put(const void* kind, const void* call) = 0; // false: of another kind
    virtual void launch() const = 0;
    // How many of the communicator's collectives it makes.
    unsigned collectives() const { return last == 0 ? 0 : last - (first == 0 ? 1 : first) + 1; }

    void* team = nullptr;
    device::fused_options o;
    std::function<void()> done;   // called once it is in its stream
    unsigned first = 0, last = 0; // the calls' numbers in the group, from 1; 0: the group's messages
};
using grouped_kernels = std::vector<sole_ptr<grouped_kernel>>;

class kernel_batch {
public:
    kernel_batch() = default;
    // Adds its kernels to `kept` instead of launching them.
    explicit kernel_batch(grouped_kernels& kept) : kept_(&kept) {}
    bool is_kept() const { return kept_ != nullptr; }
    // Adds a kernel with one call.
    template <class Team, class Call>
    void keep(Team& team, const Call& call, const device::fused_options& o) {
        auto k = make_sole<one_call<Team, Call>>(call);
        k->team = &team;
        k->o = o;
        k->first = k->last = number_;
        kept_->push_back(std::move(k));
    }
    // Whether the next call must wait in its stream for the calls before the group.
    bool is_first() const { return number_ <= 1; }
    void begin_call(unsigned number) { number_ = number; }

    // Sets the kernel that the calls of add_mixed() share.
    template <class Team, class Kinds>
    void use_mix() {
        make_mix_ = [] { return sole_ptr<grouped_kernel>(make_mix<Team>(Kinds())); };
    }
    // done: called once the kernel is in its stream.
    template <class Team, class Call, class Done>
    void add(Team& team, Call call, const device::fused_options& o, const std::vector<used_memory>& uses,
             const Done& done) {
        if (!has_place_for(&kind_of<Call>, uses)) open(make_sole<array_of<Team, Call>>(), &team, o, done);
        put(call, uses);
    }
    // As add(), to the group's kernel. False: that kernel does not take calls of this kind.
    template <class Team, class Call, class Done>
    bool add_mixed(Team& team, Call call, const device::fused_options& o, const std::vector<used_memory>& uses,
                   const Done& done) {
        if (!has_place_for(&kind_of<Call>, uses)) open(make_mix_(), &team, o, done);
        return put(call, uses);
    }
    // Throws the error that ends the group. An error of flush() names its calls; any other is of the call to add.
    [[noreturn]] void end(const error& e) {
        if (has_named_) raise(e);
        flush();
        raise(in_group(e, number_, number_));
    }
    // Launches the open kernel, or keeps it. Errors name its calls.
    void flush() {
        used_.clear();
        sole_ptr<grouped_kernel> k = std::exchange(open_, sole_ptr<grouped_kernel>());
        if (k == nullptr) return;
        if (is_kept()) return kept_->push_back(std::move(k));
        try {
            k->launch();
            k->done();
        } catch (const error& e) {
            has_named_ = true;
            raise(in_group(e, k->first, k->last));
        }
    }

private:
    template <class Call>
    static constexpr char kind_of = 0;

    template <class Team, class Call>
    struct one_call final : grouped_kernel {
        explicit one_call(const Call& c) : call(c) {}
        bool has_room(const void*) const override { return false; }
        bool put(const void*, const void*) override { return false; }
        void launch() const override { static_cast<Team*>(this->team)->run(call, this->o); }
        Call call;
    };
    template <class Team, class Call>
    struct array_of final : grouped_kernel {
        bool has_room(const void* kind) const override {
            return kind == &kind_of<Call> && calls.size() < device::call_array<Call>::most;
        }
        bool put(const void*, const void* call) override {
            calls.add(*static_cast<const Call*>(call));
            return true;
        }
        void launch() const override { static_cast<Team*>(this->team)->run_array(calls, this->o); }
        device::call_array<Call> calls;
    };
    template <class Team, class... Calls>
    struct mix_of final : grouped_kernel {
        bool has_room(const void* kind) const override {
            return ((kind == &kind_of<Calls> && calls.template has_room<Calls>()) || ...);
        }
        bool put(const void* kind, const void* call) override {
            return ((kind == &kind_of<Calls> && (calls.add(*static_cast<const Calls*>(call)), true)) || ...);
        }
        void launch() const override { static_cast<Team*>(this->team)->run_array(calls, this->o); }
        device::call_mix<Calls...> calls;
    };
    template <class Team, class... Calls>
    static auto make_mix(device::call_kinds<Calls...>) {
        return make_sole<mix_of<Team, Calls...>>();
    }

    bool has_place_for(const void* kind, const std::vector<used_memory>& uses) const {
        if (open_ == nullptr || !open_->has_room(kind)) return false;
        for (const used_memory& u : used_)
            for (const used_memory& v : uses)
                if (u.is_needed_by(v)) return false;
        return true;
    }
    template <class Team, class Done>
    void open(sole_ptr<grouped_kernel> k, Team* team, const device::fused_options& o, const Done& done) {
        flush();
        open_ = std::move(k);
        open_->team = team;
        open_->o = o;
        open_->done = done;
        open_->first = number_;
    }
    template <class Call>
    bool put(Call& call, const std::vector<used_memory>& uses) {
        call.args.call = static_cast<std::uint16_t>(number_ < last_call ? number_ : last_call);
        open_->last = number_;
        used_.insert(used_.end(), uses.begin(), uses.end());
        return open_->put(&kind_of<Call>, &call);
    }

    static constexpr unsigned last_call = device::wait_report::last_call;

    grouped_kernels* kept_ = nullptr;
    sole_ptr<grouped_kernel> open_;
    sole_ptr<grouped_kernel> (*make_mix_)() = nullptr;
    std::vector<used_memory> used_; // by the open kernel's calls
    unsigned number_ = 0;           // of the call that is added
    bool has_named_ = false;
};

} // namespace detail
COLLX_END_NAMESPACE
