// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The typed part of a call. The engine (task.hpp) moves bytes and is compiled once. An element_ops does what a step
// does to elements: a few functions over a mover, which knows the tensors, the hooks, the operator and the type on the
// wire. It costs one indirect call per step and piece, 1 to 2 ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <collx/core/config.hpp>
#include <collx/sched/step.hpp>
#include <collx/version.hpp>

COLLX_BEGIN_NAMESPACE

// Positions and counts are in elements, wires are bytes. See mover for the functions.
class element_ops {
public:
    struct facts {
        std::size_t bytes, align; // of an element on the wire
        std::uint64_t kind;       // of elements and operator: ranks compare it
        bool plain, reduces;      // plain: the user's memory holds what travels
        // For plain operands; else null and 0.
        const std::byte* in = nullptr;
        std::byte* out = nullptr;
        std::size_t in_elems = 0, out_elems = 0;
    };
    const facts is;

    // Whether input and output are different memory. Requires: plain.
    bool is_disjoint() const {
        return is.in + is.in_elems * is.bytes <= is.out || is.out + is.out_elems * is.bytes <= is.in;
    }
    virtual void set_tmp(std::byte*, bool travels) = 0;
    virtual void set_ranks(int contributors) = 0;
    virtual void stay_in_caches() = 0;
    virtual void load(std::byte* to, sched::place from, std::size_t at, std::size_t n) const = 0;
    virtual void store(sched::place to, std::size_t at, const std::byte* from, std::size_t n) = 0;
    virtual void move(sched::place from, std::size_t from_at, sched::place to, std::size_t to_at, std::size_t n) = 0;
    virtual void combine(const std::byte* received, bool received_left, sched::place own, std::size_t own_at,
                         sched::place to, std::size_t to_at, std::byte* forward, std::size_t n) = 0;
    virtual void fold_ranks(const std::byte** sources, int count, int own_index, sched::place own, std::size_t own_at,
                            sched::place to, std::size_t to_at, std::byte* also, std::size_t n) = 0;
    // Combines `count` arrays into one, in their order. Requires: plain.
    virtual void sum(std::byte* to, const std::byte* const* from, int count, std::size_t n) const = 0;
    virtual void fold_everywhere(const std::byte* const* sources, std::byte* const* to, int count,
                                 std::size_t n) const = 0;

protected:
    explicit element_ops(const facts& f) : is(f) {}
    element_ops(const element_ops&) = default;
    ~element_ops() = default;
};

// A mover behind the interface of element_ops.
template <class Mover>
class typed_elements final : public element_ops {
    using wire = typename Mover::wire_type;

public:
    explicit typed_elements(const Mover& m) : element_ops(facts_of(m)), mover_(m) {}
    Mover& mover() { return mover_; }
    const Mover& mover() const { return mover_; }

    void set_tmp(std::byte* p, bool travels) override { mover_.set_tmp(p, travels); }
    void set_ranks(int contributors) override {
        if constexpr (requires { mover_.set_ranks(contributors); }) mover_.set_ranks(contributors);
    }
    void stay_in_caches() override {
        if constexpr (Mover::plain) mover_.stay_in_caches();
    }
    void load(std::byte* to, sched::place from, std::size_t at, std::size_t n) const override {
        mover_.load(reinterpret_cast<wire*>(to), from, at, n);
    }
    void store(sched::place to, std::size_t at, const std::byte* from, std::size_t n) override {
        mover_.store(to, at, reinterpret_cast<const wire*>(from), n);
    }
    void move(sched::place from, std::size_t from_at, sched::place to, std::size_t to_at, std::size_t n) override {
        mover_.move(from, from_at, to, to_at, n);
    }
    void combine(const std::byte* received, bool received_left, sched::place own, std::size_t own_at, sched::place to,
                 std::size_t to_at, std::byte* forward, std::size_t n) override {
        if constexpr (Mover::reduces)
            mover_.combine(reinterpret_cast<const wire*>(received), received_left, own, own_at, to, to_at,
                           reinterpret_cast<wire*>(forward), n);
    }
    void fold_ranks(const std::byte** sources, int count, int own_index, sched::place own, std::size_t own_at,
                    sched::place to, std::size_t to_at, std::byte* also, std::size_t n) override {
        if constexpr (Mover::reduces)
            mover_.fold_ranks(reinterpret_cast<const wire**>(sources), count, own_index, own, own_at, to, to_at,
                              reinterpret_cast<wire*>(also), n);
    }
    void sum(std::byte* to, const std::byte* const* from, int count, std::size_t n) const override {
        if constexpr (Mover::plain && Mover::reduces)
            mover_.sum(reinterpret_cast<wire*>(to), reinterpret_cast<const wire* const*>(from), count, n);
    }
    void fold_everywhere(const std::byte* const* sources, std::byte* const* to, int count,
                         std::size_t n) const override {
        if constexpr (Mover::plain && Mover::reduces)
            mover_.fold_everywhere(reinterpret_cast<const wire* const*>(sources), reinterpret_cast<wire* const*>(to),
                                   count, n);
    }

private:
    static facts facts_of(const Mover& m) {
        facts f{.bytes = sizeof(wire),
                .align = alignof(wire),
                .kind = kind(m),
                .plain = Mover::plain,
                .reduces = Mover::reduces};
        if constexpr (Mover::plain) {
            f.in = reinterpret_cast<const std::byte*>(m.input().data());
            f.out = reinterpret_cast<std::byte*>(const_cast<wire*>(m.output().data()));
            f.in_elems = m.input().size();
            f.out_elems = m.output().size();
        }
        return f;
    }
    static constexpr std::uint64_t kind(const Mover& m) {
        if constexpr (requires { m.op().chosen().kind; }) return m.op().chosen().kind; // chosen at run time: any_op.hpp
        else if constexpr (requires { Mover::kind; }) return Mover::kind;
        else return sizeof(wire);
    }
    Mover mover_;
};

namespace detail {
template <class Mover>
struct kept_elements {
    typed_elements<Mover> elements;
};
} // namespace detail

// An operation with the elements that it refers to, for calls that outlive the function that began them. (The elements
// are a base, and the first, because bases are constructed before members.)
template <class Operation, class Mover>
class typed_operation final : detail::kept_elements<Mover>, public Operation {
public:
    template <class Links, class Plan, class... Args>
    typed_operation(Links& links, Plan& plan, const Mover& mover, Args&&... args)
        : detail::kept_elements<Mover>{typed_elements<Mover>(mover)},
          Operation(links, plan, this->elements, std::forward<Args>(args)...) {}
    typed_operation(const typed_operation&) = delete;
};

COLLX_END_NAMESPACE
