// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One face for all stores that the environment may name, so that what is said through them is compiled once per program
// and not once per kind of store.
#pragma once

#include <collx/bootstrap/store.hpp>

COLLX_BEGIN_NAMESPACE

class any_store {
public:
    virtual void set(std::string_view key, std::string_view value) = 0;
    virtual std::string get(std::string_view key, const deadline& until) = 0;
    virtual std::int64_t add(std::string_view key, std::int64_t delta) = 0;
    virtual void barrier(std::string_view name, int ranks, const deadline& until) = 0;

protected:
    ~any_store() = default;
};
// The same of those with the order of process managers: see CollectiveStore.
class any_collective_store : public any_store {
public:
    static constexpr bool is_collective = true;
    virtual int next_turn() = 0;

protected:
    ~any_collective_store() = default;
};

namespace detail {

// A store behind that face. It must outlive this.
template <Store S, class Face>
class faced_store : public Face {
public:
    explicit faced_store(S& s) : store_(s) {}
    void set(std::string_view key, std::string_view value) override { store_.set(key, value); }
    std::string get(std::string_view key, const deadline& until) override { return store_.get(key, until); }
    std::int64_t add(std::string_view key, std::int64_t delta) override { return store_.add(key, delta); }
    void barrier(std::string_view name, int ranks, const deadline& until) override {
        store_.barrier(name, ranks, until);
    }

protected:
    ~faced_store() = default;
    S& store_;
};
template <Store S>
class plain_face final : public faced_store<S, any_store> {
public:
    using faced_store<S, any_store>::faced_store;
};
template <CollectiveStore S>
class collective_face final : public faced_store<S, any_collective_store> {
public:
    using faced_store<S, any_collective_store>::faced_store;
    int next_turn() override { return this->store_.next_turn(); }
};

} // namespace detail

COLLX_END_NAMESPACE
