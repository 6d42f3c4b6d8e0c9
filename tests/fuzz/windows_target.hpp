// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a peer may send to a window: messages to the rank that owns the part, answers to the rank that asked, and the
// line of a signal in shared memory. Rank 0 sends what the input says; rank 1 has a normal window, and a model gives
// the expected effect of each message. It must accept valid messages, and refuse all others as errc::protocol of rank
// 0. Only bytes named in valid messages may change.
#pragma once

#include <collx/comm/remote_window.hpp>
#include <collx/comm/run_threads.hpp>
#include <collx/comm/window.hpp>
#include <collx/net.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fuzz/input.hpp"

namespace collx_fuzz {

struct window_message {
    std::uint32_t tag;
    std::string bytes;
};
// Elements that are combined under a lock.
struct three {
    double x[3];
};
struct add_three {
    three operator()(const three& a, const three& b) const { return {a.x[0] + b.x[0], a.x[1] + b.x[1], b.x[2]}; }
};
struct window_type {
    std::uint64_t hash, bytes;
    collx::detail::combination by;
};
// Includes types of equal size, each with an operator that the program has for it.
inline const window_type& type_at(unsigned i) {
    using collx::detail::combination_of;
    static const window_type all[] = {
        {type_hash<std::uint32_t>(), 4, combination_of<std::uint32_t>(plus{})},
        {type_hash<float>(), 4, combination_of<float>(plus{})},
        {type_hash<std::uint64_t>(), 8, combination_of<std::uint64_t>(collx::max{})},
        {type_hash<std::uint64_t>(), 8, combination_of<std::uint64_t>(collx::detail::swapped{})},
        {type_hash<double>(), 8, combination_of<double>(plus{})},
        {type_hash<three>(), 24, combination_of<three>(add_three{})},
    };
    return all[i % (sizeof all / sizeof *all)];
}

// The expected content of rank 1's part after each message of rank 0.
struct window_model {
    static constexpr std::uint32_t head_tag = 0x77'69'6e'64, part_tag = 0x77'69'6e'70, answer_tag = 0x77'69'6e'61;
    static constexpr std::size_t apart_bytes = 128 * 1024; // larger puts have separate messages
    static std::size_t slot_bytes() { return links_layout::across_hosts(1, 2, false).channel.slot_bytes; }
    using head = collx::detail::window_head;

    std::string part;
    const window_type* type;
    std::uint64_t at = 0, left = 0, signals = 0;
    bool signals_after = false, is_refused = false;
    std::vector<std::string> answers;

    std::size_t next_part_bytes() const { return std::min<std::uint64_t>(left, slot_bytes()); }
    void take(const window_message& m) { is_refused = is_refused || !takes(m); }

private:
    bool takes(const window_message& m) {
        if (left != 0) {
            if (m.tag != part_tag || m.bytes.size() != next_part_bytes()) return false;
            part.replace(at, m.bytes.size(), m.bytes);
            at += m.bytes.size();
            left -= m.bytes.size();
            signals += left == 0 && signals_after;
            return true;
        }
        head h;
        if (m.tag != head_tag || m.bytes.size() < sizeof h) return false;
        std::memcpy(&h, m.bytes.data(), sizeof h);
        const std::string with = m.bytes.substr(sizeof h);
        if (h.signals > 1 || h.at > part.size() || h.bytes > part.size() - h.at) return false;
        if (h.what == head::combine) return combines(h, with);
        if (h.what == head::put && h.bytes < apart_bytes) {
            if (with.size() != h.bytes) return false;
            part.replace(h.at, h.bytes, with);
            signals += h.signals;
            return true;
        }
        if (!with.empty()) return false;
        if (h.what == head::put) {
            at = h.at;
            left = h.bytes;
            signals_after = h.signals != 0;
            return true;
        }
        if (h.what == head::get) {
            answers.push_back(part.substr(h.at, h.bytes));
            return h.bytes != 0;
        }
        answers.emplace_back();
        return h.what == head::flush;
    }
    bool combines(const head& h, const std::string& with) {
        const collx::detail::window_operator* how = nullptr;
        for (unsigned i = 0; i < 6; ++i) {
            const auto* it = type_at(i).by.entry;
            if (type_at(i).hash == type->hash && it->kind == h.kind && it->distance == h.distance) how = it;
        }
        if (how == nullptr || h.at % type->bytes != 0 || h.bytes % type->bytes != 0) return false;
        if (with.size() != how->operands * h.bytes || (h.signals != 0 && h.bytes != type->bytes)) return false;
        std::vector<double> image(h.bytes / 8 + 1), old(3); // for alignment
        std::memcpy(image.data(), part.data() + h.at, h.bytes);
        how->run(nullptr, reinterpret_cast<std::byte*>(image.data()), reinterpret_cast<const std::byte*>(with.data()),
                 h.bytes / type->bytes, h.signals != 0 ? reinterpret_cast<std::byte*>(old.data()) : nullptr);
        part.replace(h.at, h.bytes, reinterpret_cast<const char*>(image.data()), h.bytes);
        if (h.signals != 0) answers.emplace_back(reinterpret_cast<const char*>(old.data()), type->bytes);
        return true;
    }
};

inline std::uint64_t window_number(input& in) {
    const unsigned how = in.take();
    const std::uint64_t n = in.take();
    return how % 4 == 0 ? n : how % 4 == 1 ? n << 8 | in.take() : how % 4 == 2 ? n << 12 : 0 - n;
}
// A valid message, or one that the input changes.
inline window_message next_message(input& in, const window_model& m) {
    using head = window_model::head;
    const unsigned form = in.take();
    const std::uint64_t size = m.part.size();
    head h{form % 5 == 0   ? head::put
           : form % 5 == 1 ? head::get
           : form % 5 == 2 ? head::combine
           : form % 5 == 3 ? head::flush
                           : head::put,
           form >> 7,
           0,
           0,
           0,
           0};
    std::size_t payload = 0;
    window_message made{window_model::head_tag, {}};
    if (m.left != 0 && (form & 96) != 0) {
        made.tag = window_model::part_tag;
        made.bytes.assign(m.next_part_bytes(), static_cast<char>(in.take()));
    } else {
        if (h.what == head::combine) {
            const auto& by = type_at((form & 96) != 0 ? in.take() : 0).by;
            h.kind = by.entry->kind;
            h.distance = by.entry->distance;
            h.at = window_number(in) % (size / by.elem_bytes) * by.elem_bytes;
            const std::uint64_t most = (size - h.at) / by.elem_bytes;
            h.bytes = (h.signals != 0 ? 1 : in.take() % (most < 20 ? most + 1 : 20)) * by.elem_bytes;
            payload = by.operands * h.bytes;
        } else if (h.what != head::flush) {
            h.signals = h.what == head::put ? h.signals : 0;
            h.at = window_number(in) % size;
            h.bytes = form % 5 == 4 ? size - h.at : window_number(in) % (size - h.at + 1);
            if (h.what == head::get && h.bytes == 0) h.bytes = 1;
            if (h.what == head::put && h.bytes < window_model::apart_bytes) payload = h.bytes;
        } else {
            h.signals = 0;
        }
        made.bytes.assign(reinterpret_cast<const char*>(&h), sizeof h);
        for (std::size_t i = 0; i < payload; ++i) made.bytes += static_cast<char>(i < 8 ? in.take() : i);
    }
    const unsigned change = in.take();
    if (change % 8 != 1) return made;
    if (change & 64) made.bytes.resize(std::min(window_number(in) % 70'000, window_model::slot_bytes()));
    if (change & 128) made.tag = change & 32 ? static_cast<std::uint32_t>(window_number(in)) : window_model::part_tag;
    if (!made.bytes.empty()) {
        char& c = made.bytes[in.take() % made.bytes.size()];
        c = static_cast<char>(c ^ static_cast<char>(in.take()));
    }
    return made;
}

struct window_attack {
    std::atomic<bool> is_made{false}, is_heard{false}, is_through{false};
    std::vector<window_message> messages;
    bool is_refused = false;

    // Waits until holds() is true, with a limit.
    template <class F>
    static void until(F&& holds) {
        for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(50); !holds();
             std::this_thread::yield())
            require(std::chrono::steady_clock::now() < end, "a window that does not go on");
    }
    // Rank 0: sends all messages to a port of rank 1, whatever it answers. take: reads the answers.
    template <class F>
    void send(collx::detail::one_sided& x, int at_port, F&& take) {
        is_made = true;
        links& net = x.core().net;
        const auto is_over = [&] { return net.failed() || is_through; };
        require(net.slot_bytes() == window_model::slot_bytes(), "slots of another size");
        for (const window_message& m : messages) {
            sending_end& tx = net.tx(at_port, 1);
            std::byte* to = nullptr;
            until([&] {
                net.move();
                take(net);
                return is_over() || (to = tx.try_acquire(m.bytes.size())) != nullptr;
            });
            if (to == nullptr) return;
            if (!m.bytes.empty()) std::memcpy(to, m.bytes.data(), m.bytes.size());
            tx.commit(m.bytes.size(), m.tag);
            net.push(1);
        }
        until([&] {
            net.move();
            return is_over() || take(net);
        });
        is_heard = true;
        until([&] {
            net.move();
            take(net);
            return is_over();
        });
    }
    // Rank 1, whose call must end as the model says.
    template <class F>
    void meet(collx::detail::one_sided& x, F&& call) {
        bool was_refused = false;
        try {
            call();
        } catch (const error& e) {
            was_refused = true;
            require(e.code() == errc::protocol && e.rank() == 1 && e.peer() == 0, "refused with another error");
            require(std::strstr(e.what(), "same version") != nullptr, "an error without a remedy");
        }
        require(was_refused == is_refused, was_refused ? "a sound message was refused" : "a false message was taken");
        is_through = true;
        if (!was_refused) x.own().abort();
    }
};

inline collx::detail::window_part part_of(const window_type& t, std::size_t bytes) {
    return {nullptr, bytes, t.bytes, t.hash, "fuzzed"};
}

// Messages to rank 1, of another host.
inline void window_messages(input in) {
    constexpr std::size_t sizes[] = {48, 4800, 300'000, 1'200'000};
    const window_type& type = type_at(in.take());
    window_model m{std::string(sizes[in.take() % 4], '\0'), &type};
    window_attack a;
    for (int i = 0; i < 40 && in.left != 0 && !m.is_refused; ++i) {
        a.messages.push_back(next_message(in, m));
        m.take(a.messages.back());
    }
    const window_model::head end{window_model::head::put, 1, 0, 0, 0, 0};
    a.messages.push_back({window_model::head_tag, {reinterpret_cast<const char*>(&end), sizeof end}});
    const std::uint64_t before = m.signals;
    m.take(a.messages.back());
    a.is_refused = m.is_refused;
    run_threads(std::vector<int>{0, 1}, [&](communicator& w) {
        collx::detail::one_sided x(w, part_of(type, m.part.size()));
        std::size_t heard = 0;
        const auto take = [&](links& net) {
            for (auto& rx = net.rx(port::first_async, 1); rx.has_message(); ++heard) {
                require(heard < m.answers.size(), "an answer to nothing");
                const std::string& right = m.answers[heard]; // only the last one may be longer than a slot
                const std::size_t bytes = std::min(right.size(), window_model::slot_bytes());
                require(rx.is_expected(bytes, window_model::answer_tag), "an answer of another size");
                require(bytes == 0 || std::memcmp(rx.peek(bytes), right.data(), bytes) == 0, "other bytes were got");
                if (bytes < right.size())
                    m.answers.insert(m.answers.begin() + static_cast<long>(heard) + 1, right.substr(bytes));
                rx.release(bytes);
            }
            return heard == m.answers.size();
        };
        if (w.rank() == 0) return a.send(x, port::messages, take);
        a.meet(x, [&] {
            x.wait(0, before + 1, 0);
            require(std::memcmp(x.shared_part(1), m.part.data(), m.part.size()) == 0, "other bytes than were put");
            window_attack::until([&] {
                x.progress();
                return a.is_heard.load();
            });
        });
    });
}

// Answers of rank 0, on another host, to requests of rank 1.
inline void window_answers(input in) {
    const window_type& type = type_at(0);
    constexpr std::size_t most = 1'200'000;
    std::vector<std::size_t> asked; // 0: a flush
    window_attack a;
    for (int i = 0; i < 10 && in.left != 0 && !a.is_refused; ++i) {
        asked.push_back(window_number(in) * (in.take() % 4 == 0 ? 100 : 1) % most);
        std::size_t left = asked.back();
        do {
            const std::size_t bytes = std::min(left, window_model::slot_bytes());
            window_message it{window_model::answer_tag, std::string(bytes, static_cast<char>(i))};
            const unsigned change = in.take();
            if (change % 8 == 1) it.tag ^= in.take();
            if (change % 8 == 2) it.bytes.resize(window_number(in) % window_model::slot_bytes());
            a.is_refused = a.is_refused || it.tag != window_model::answer_tag || it.bytes.size() != bytes;
            a.messages.push_back(std::move(it));
            left -= bytes;
        } while (left != 0);
    }
    run_threads(std::vector<int>{0, 1}, [&](communicator& w) {
        collx::detail::one_sided x(w, part_of(type, most));
        const auto take = [](links& net) { // reads the requests, so that slots are free for more
            for (auto& rx = net.rx(port::messages, 1); rx.has_message();) rx.release(rx.message_bytes());
            return true;
        };
        if (w.rank() == 0) return a.send(x, port::first_async, take);
        window_attack::until([&] { return a.is_made.load(); }); // making a window would read the answers that arrive
        a.meet(x, [&] {
            for (std::size_t i = 0; i < asked.size(); ++i) {
                std::string got(asked[i] + 1, '!');
                const std::uint32_t one = 1;
                if (asked[i] == 0) {
                    x.put(0, 0, &one, 4, true);
                    x.flush(0);
                } else x.get(0, 0, got.data(), asked[i]);
                require(got == std::string(asked[i], static_cast<char>(i)) + '!', "other bytes than were answered");
            }
        });
    });
}

// The signal line that rank 0 shares with rank 1.
inline void window_lines(input in) {
    constexpr std::size_t bytes = 4096;
    constexpr unsigned turns = 6;
    std::atomic<unsigned> turn{0}; // if even, rank 0 writes
    window_attack a;
    std::string part(bytes, '\0');
    run_threads(2, [&](communicator& w) {
        collx::detail::one_sided x(w, part_of(type_at(0), bytes));
        if (w.rank() == 1) {
            a.meet(x, [&] {
                for (unsigned i = 0; i < turns; ++i) {
                    window_attack::until([&] { return turn == 2 * i + 1; });
                    x.wait(0, 1, 0);
                    require(std::memcmp(x.shared_part(1), part.data(), bytes) == 0, "other bytes than were carried");
                    ++turn;
                }
            });
            return;
        }
        std::uint64_t word = 0, stored = 0;
        for (unsigned i = 0; i < turns; ++i) {
            window_attack::until([&] { return turn == 2 * i || a.is_through; });
            if (a.is_through) return;
            auto& line = *x.peer(1).to;
            const std::uint64_t at = window_number(in), size = in.take() % 40, number = in.take() % 16;
            word = std::max<std::uint64_t>(word, i + 1) + in.take() % 3;
            for (auto& b : line.payload) b = static_cast<std::byte>(in.take());
            line.place = at << 8 | size;
            line.number.store(number, memory_order::relaxed);
            if (number > stored && number <= word) {
                const std::uint64_t place = line.place >> 8; // some of the 64 bits are lost
                const bool fits = size <= 32 && place <= bytes && size <= bytes - place;
                a.is_refused = a.is_refused || !fits;
                if (fits) part.replace(place, size, reinterpret_cast<const char*>(line.payload), size);
                stored = number;
            }
            ++turn;
            line.word.store(word, memory_order::release);
        }
        window_attack::until([&] { return a.is_through.load(); });
    });
}

inline void windows(input in) {
    const unsigned how = in.take() % 8;
    if (how == 0) window_lines(in);
    else if (how == 1) window_answers(in);
    else window_messages(in);
}

} // namespace collx_fuzz
