// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How a rank that waits in one communicator advances its others, because a peer may wait for their messages. Where
// there are few communicators, all are moved. Where there are many, those are moved that have something to read, and in
// each call one other in turn, which may have something to send. So a call takes as long with a thousand communicators
// as with ten. Sockets are known here only by their descriptors.
#pragma once

#include <cstddef>
#include <cstdint>

#include <collx/core/atomic.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/yielding_lock.hpp>
#include <collx/transport/detail/poll_set.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// A communicator's connections.
struct helped {
    virtual void help() = 0;
    // Gives each of its connections to mutual_help::watch(). A communicator that does not is helped only in turn.
    virtual void be_watched() {}

protected:
    ~helped() = default;
};

class mutual_help {
public:
    explicit mutual_help(const socket_calls& calls) : calls_(&calls) {}

    // The name by which h is known here until it leaves.
    [[gnu::cold]] std::uint64_t enter(helped& h) {
        const lock_held here(lock_);
        if (free_.empty()) {
            free_.push_back(places_.size());
            places_.emplace_back();
        }
        const std::size_t at = free_.back();
        places_[at].who = &h;
        free_.pop_back();
        if (count() > few && !poll_.is_open()) {
            poll_.open();
            is_watching_.store(poll_.is_open(), memory_order::release);
            for (const place& p : places_)
                if (p.who != nullptr) p.who->be_watched();
        }
        return std::uint64_t{places_[at].uses} << 32 | at;
    }
    [[gnu::cold]] void leave(std::uint64_t name) {
        const lock_held here(lock_);
        place& p = places_[index(name)];
        p.who = nullptr;
        ++p.uses;
        free_.push_back(index(name));
    }
    // watch(): a connection of the communicator of this name is new. stop_watching(): it will soon be another's.
    void watch(int fd, std::uint64_t name) {
        if (is_watching_.load(memory_order::acquire)) poll_.add(fd, name);
    }
    void stop_watching(int fd) {
        if (is_watching_.load(memory_order::acquire)) poll_.remove(fd);
    }
    // A communicator has something to read that no descriptor shows.
    void note(std::uint64_t name) {
        const lock_held here(notes_lock_);
        noted_.push_back(name);
        has_notes_.store(true, memory_order::release);
    }
    // but: the one that calls, if it is one of these.
    void help_others(const helped* but = nullptr) {
        const lock_tried here(lock_);
        if (!here || count() <= std::size_t{but != nullptr}) return;
        const auto help = [&](const place& p) {
            if (p.who != nullptr && p.who != but) p.who->help();
        };
        help_noted(help);
        if (!poll_.is_open()) {
            for (const place& p : places_) help(p);
            return;
        }
        (void)poll_.visit_readable(*calls_, [&](std::uint64_t name) {
            help_named(name, help);
            return true;
        });
        next_ = (next_ + 1) % places_.size();
        help(places_[next_]);
    }

private:
    struct place {
        helped* who = nullptr;
        std::uint32_t uses = 0; // so that no name comes twice
    };
    template <class Help>
    void help_named(std::uint64_t name, Help&& help) {
        const place& p = places_[index(name)];
        if (p.uses == name >> 32) help(p); // else the name of one that has left
    }
    template <class Help>
    void help_noted(Help&& help) {
        if (!has_notes_.load(memory_order::acquire)) return;
        growing_array<std::uint64_t> names;
        {
            const lock_held here(notes_lock_);
            names.swap(noted_);
            has_notes_.store(false, memory_order::release);
        }
        for (const std::uint64_t name : names) help_named(name, help);
    }
    static constexpr std::size_t few = 8;
    static constexpr std::size_t index(std::uint64_t name) { return static_cast<std::size_t>(name & 0xffff'ffff); }
    std::size_t count() const { return places_.size() - free_.size(); }

    const socket_calls* calls_;
    yielding_lock lock_; // protects all of these but the next two
    poll_set poll_;
    atomic<bool> is_watching_{false};
    growing_array<place> places_;
    growing_array<std::size_t> free_;
    std::size_t next_ = 0;
    yielding_lock notes_lock_; // protects these
    growing_array<std::uint64_t> noted_;
    atomic<bool> has_notes_{false};
};

} // namespace detail

COLLX_END_NAMESPACE
