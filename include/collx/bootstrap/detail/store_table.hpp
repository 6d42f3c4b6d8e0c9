// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The values that the server of a store keeps, by key, bounded in number and bytes.
#pragma once

#include <cstdint>

#include <collx/core/descriptor.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

class store_table {
public:
    static constexpr std::size_t most_entries = 1 << 18, most_total_bytes = std::size_t{64} << 20;
    struct entry {
        std::uint64_t hash;
        kept_text key, value;
    };

    [[gnu::cold]] entry* find(const kept_text& key) {
        const std::uint64_t hash = hash_bytes(key.data(), key.size(), 0);
        for (std::uint64_t at = hash;; ++at) {
            const std::uint32_t place = index_[at & (index_.size() - 1)];
            if (place == 0) return nullptr;
            entry& e = entries_[place - 1];
            if (e.hash == hash && e.key == key) return &e;
        }
    }
    // Sets a value. held: the result of find() for the key. False when there is no room.
    [[gnu::cold]] bool put(entry* held, const kept_text& key, const kept_text& value) {
        const std::size_t more = value.size() + (held == nullptr ? key.size() : 0),
                          less = held != nullptr ? held->value.size() : 0;
        if (total_bytes_ - less + more > most_total_bytes || (held == nullptr && entries_.size() >= most_entries))
            return false;
        total_bytes_ = total_bytes_ - less + more;
        if (held != nullptr) held->value = value;
        else add_entry({hash_bytes(key.data(), key.size(), 0), key, value});
        return true;
    }

private:
    // Adds the entry at `place` - 1 to the index.
    void note_entry(std::uint32_t place) {
        std::uint64_t at = entries_[place - 1].hash;
        while (index_[at & (index_.size() - 1)] != 0) ++at;
        index_[at & (index_.size() - 1)] = place;
    }
    [[gnu::cold]] void add_entry(entry e) {
        entries_.push_back(static_cast<entry&&>(e));
        const auto count = static_cast<std::uint32_t>(entries_.size());
        if (2 * entries_.size() <= index_.size()) return note_entry(count);
        index_.assign(2 * index_.size(), 0);
        for (std::uint32_t place = 1; place <= count; ++place) note_entry(place);
    }

    growing_array<entry> entries_;
    growing_array<std::uint32_t> index_ = growing_array<std::uint32_t>(256); // by hash: place in entries_ + 1, 0: none
    std::size_t total_bytes_ = 0;
};

} // namespace detail
COLLX_END_NAMESPACE
