// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A store: where processes exchange a few words before they have any other way to communicate. It has four functions,
// so that a program can bring its own (Redis, etcd, a test's map). This file has the concept and what is built on it;
// models are memory_store, file_store, tcp_store, and with the order of process managers pmi_store and pmix_store.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <collx/bootstrap/store_alarm.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/core/error.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/random_bytes.hpp>

COLLX_BEGIN_NAMESPACE

// The longest key and value of a store, in bytes.
inline constexpr std::size_t most_key_bytes = 256;
inline constexpr std::size_t most_value_bytes = 64 * 1024;

// set: gives the key this value for all ranks; the last call wins.
// get: waits for the key; throws timeout when the deadline passes, but looks once even if it has passed already.
// add: adds to a number (0 at first) atomically and returns the sum; get() reads it as decimal text.
// barrier: returns when `ranks` calls of this name have been made; may be used again and again.
// Errors: invalid_argument for an empty or too long key, a too long value, add() on text that is no number.
template <class S>
concept Store = requires(S& s, name_view text, std::int64_t delta, int ranks, const deadline& until) {
    s.set(text, text);
    { s.get(text, until) } -> std::convertible_to<kept_text>;
    { s.add(text, delta) } -> std::same_as<std::int64_t>;
    s.barrier(text, ranks, until);
};

// A store in which other ranks see a value after a barrier of all ranks, as with PMI and PMIx. Its process manager
// knows the ranks and their number, so no rank has to check who has come.
template <class S>
concept CollectiveStore = Store<S> && requires(S& s) {
    requires S::is_collective;
    { s.next_turn() } -> std::same_as<int>; // counts the meetings of this store, equally on all ranks
};

namespace detail {

inline void check_store_key(name_view key) {
    if (key.empty() || key.size() > most_key_bytes)
        fail(errc::invalid_argument, -1, -1, "", "a store key has 1 to %zu bytes, not %zu", most_key_bytes, key.size());
}
inline void check_store_value(name_view value) {
    if (value.size() > most_value_bytes)
        fail(errc::invalid_argument, -1, -1, "", "a store value has at most %zu bytes, not %zu", most_value_bytes,
             value.size());
}
[[noreturn, gnu::cold]] inline void fail_store_timeout(name_view key) {
    fail(errc::timeout, -1, -1, "are all ranks started, with the same store?", "'%.*s' was never set in the store",
         static_cast<int>(key.size()), key.data());
}

// Reads decimal text as add() keeps it. False if it is something else.
inline bool read_sum(name_view text, std::int64_t& sum) {
    const bool is_negative = !text.empty() && text[0] == '-';
    if (is_negative) text.remove_prefix(1);
    if (text.empty() || text.size() > 19) return false;
    std::uint64_t n = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return false;
        n = n * 10 + static_cast<std::uint64_t>(c - '0');
    }
    if (n > static_cast<std::uint64_t>(INT64_MAX) + (is_negative ? 1 : 0)) return false;
    sum = static_cast<std::int64_t>(is_negative ? 0 - n : n);
    return true;
}
// The sum after an addition to what a key holds (nullptr: nothing yet). Wraps rather than overflows.
inline std::int64_t add_to_text(const kept_text* held, std::int64_t delta, name_view key) {
    std::int64_t sum = 0;
    if (held != nullptr && !read_sum(*held, sum))
        fail(errc::invalid_argument, -1, -1, "use another key for counting", "'%.*s' in the store is not a number",
             static_cast<int>(key.size()), key.data());
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) + static_cast<std::uint64_t>(delta));
}

} // namespace detail

// One interface for all stores, so that code that uses stores is compiled once per program and not once per kind of
// store.
class any_store {
public:
    virtual void set(name_view key, name_view value) = 0;
    virtual kept_text get(name_view key, const deadline& until) = 0;
    virtual std::int64_t add(name_view key, std::int64_t delta) = 0;
    virtual void barrier(name_view name, int ranks, const deadline& until) = 0;
    // For a CollectiveStore; other stores have no turns.
    virtual bool has_order() const { return false; }
    virtual int next_turn() { return 0; }
    virtual store_alarm* alarm() { return nullptr; } // notices ranks that have ended; null: the store cannot

protected:
    ~any_store() = default;
};
// A store that does not have this interface yet.
template <class S>
concept OwnStore = Store<S> && !std::is_base_of_v<any_store, S>;

namespace detail {

// Gives a store this interface. The store must outlive this object.
template <class S>
class store_face final : public any_store {
    static_assert(Store<S>);

public:
    explicit store_face(S& s) : store_(s) {}
    void set(name_view key, name_view value) override { store_.set(key, value); }
    kept_text get(name_view key, const deadline& until) override { return store_.get(key, until); }
    std::int64_t add(name_view key, std::int64_t delta) override { return store_.add(key, delta); }
    void barrier(name_view name, int ranks, const deadline& until) override { store_.barrier(name, ranks, until); }
    bool has_order() const override { return CollectiveStore<S>; }
    int next_turn() override {
        if constexpr (CollectiveStore<S>) return store_.next_turn();
        else return 0;
    }
    store_alarm* alarm() override {
        if constexpr (std::is_base_of_v<store_alarm, S>) return &store_;
        else return nullptr;
    }

private:
    S& store_;
};
// A barrier of set, get and add, for stores that have no better one. Round k is over when the last of its ranks sets
// its key.
[[gnu::cold]] inline void barrier_by_counting(any_store& store, name_view name, int ranks, const deadline& until) {
    if (ranks < 1) fail(errc::invalid_argument, -1, -1, "", "a barrier of %d ranks", ranks);
    const kept_text base(name);
    const std::int64_t number = store.add(joined({base, "/came"}), 1);
    const kept_text open = joined({base, "/open/", (number - 1) / ranks});
    if (number % ranks == 0) return store.set(open, "");
    try {
        (void)store.get(open, until);
    } catch (const timed_out&) {
        const std::int64_t came = store.add(joined({base, "/came"}), 0) - (number - 1) / ranks * ranks;
        fail(errc::timeout, -1, -1, "are all ranks alive?", "%d of %d ranks came to barrier '%s'",
             static_cast<int>(came), ranks, base.c_str());
    }
}
template <OwnStore S>
void barrier_by_counting(S& store, name_view name, int ranks, const deadline& until) {
    store_face<S> face(store);
    barrier_by_counting(static_cast<any_store&>(face), name, ranks, until);
}

} // namespace detail

COLLX_END_NAMESPACE
