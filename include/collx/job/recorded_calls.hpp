// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads what flight recorders left: parses files of records, compares where the ranks are, and makes a trace of all
// records. For tools, and for programs that look at their own records; no part of a communicator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <collx/core/chrome_trace.hpp>
#include <collx/job/call_record.hpp>

COLLX_BEGIN_NAMESPACE

// The records of one rank on one communicator, the oldest first.
struct recorded_calls {
    detail::record_file head;
    std::vector<call_record> calls;
};

namespace detail {
// A call that failed has the code of an error; others may have none.
inline bool has_sound_code(const call_record& c) {
    return is_errc(static_cast<std::int64_t>(c.code)) || (c.outcome != call_outcome::failed && c.code == errc{});
}
} // namespace detail

// Parses a file of records. Another process wrote it, and may have been killed meanwhile. Records that make no sense
// are left out. Errors: protocol if it is no such file, or one of another version.
inline recorded_calls read_recorded_calls(const void* bytes, std::size_t size) {
    recorded_calls r{};
    constexpr std::int32_t most_listed = 1 << 20;   // the ranks without records are listed
    constexpr std::int64_t most_ns = INT64_MAX / 3; // three of them are added up
    const auto refuse = [](const char* what) {
        fail(errc::protocol, -1, -1, "give it a file that COLLX_RECORD_DIR made, and use the tools of the same version",
             "no file of recorded calls: %s", what);
    };
    if (size < sizeof r.head) refuse("it is too short");
    std::memcpy(&r.head, bytes, sizeof r.head);
    const detail::record_file& h = r.head;
    if (std::memcmp(h.magic, h.right_magic, sizeof h.magic) != 0) refuse("it begins otherwise");
    if (h.version != h.right_version || h.record_bytes != sizeof(call_record)) refuse("it is of another version");
    const std::size_t room = (size - sizeof h) / sizeof(call_record);
    if (h.capacity < 1 || static_cast<std::size_t>(h.capacity) > room) refuse("it is shorter than it says");
    if (h.size < 1 || h.size > most_listed || h.rank < 0 || h.rank >= h.size) refuse("its rank is none");
    for (const std::int64_t ns : {h.monotonic_ns, h.real_ns})
        if (ns < 0 || ns > most_ns) refuse("its clocks are none");
    const auto capacity = static_cast<std::uint64_t>(h.capacity);
    for (std::uint64_t k = h.begun > capacity ? h.begun - capacity : 0; k < h.begun; ++k) {
        call_record c;
        std::memcpy(static_cast<void*>(&c), static_cast<const char*>(bytes) + sizeof h + k % capacity * sizeof c,
                    sizeof c);
        c.verb[sizeof c.verb - 1] = c.algorithm[sizeof c.algorithm - 1] = '\0';
        // They are printed, and a terminal would obey control characters.
        for (char* const word : {c.verb, c.algorithm})
            for (char* p = word; *p != '\0'; ++p)
                if (*p < ' ' || *p > '~') *p = '?';
        const bool is_right = c.ordinal == k + 1 && c.begin_ns >= 0 && c.kind <= call_kind::made &&
                              c.outcome <= call_outcome::failed && detail::has_sound_code(c) &&
                              (c.outcome == call_outcome::under_way || c.end_ns >= c.begin_ns);
        if (is_right) r.calls.push_back(c);
    }
    return r;
}

// The last call that a rank is in, otherwise the last that it made. A call that failed before that one does not count:
// the rank went on. Null: no call is recorded.
inline const call_record* place_of(const recorded_calls& r) {
    const call_record* last = nullptr;
    const call_record* open = nullptr;
    for (const call_record& c : r.calls) {
        last = &c;
        if (c.outcome == call_outcome::under_way) open = &c;
    }
    return open != nullptr ? open : last;
}

namespace detail {

// Groups records by communicator, in the order in which their first ranks made them; within a group, by rank.
inline std::vector<std::vector<const recorded_calls*>> by_communicator(const std::vector<recorded_calls>& all) {
    std::map<std::pair<std::uint64_t, int>, std::vector<const recorded_calls*>> found;
    for (const recorded_calls& r : all) found[{r.head.communicator, r.head.size}].push_back(&r);
    std::vector<std::vector<const recorded_calls*>> out;
    for (auto& [id, ranks] : found) {
        std::sort(ranks.begin(), ranks.end(), [](auto* a, auto* b) { return a->head.rank < b->head.rank; });
        out.push_back(std::move(ranks));
    }
    const auto made = [](const auto& ranks) {
        std::int64_t first = INT64_MAX;
        for (const recorded_calls* r : ranks) first = std::min(first, r->head.real_ns);
        return first;
    };
    std::stable_sort(out.begin(), out.end(), [&](const auto& a, const auto& b) { return made(a) < made(b); });
    return out;
}

inline std::string said_of(const call_record& c) {
    std::string text =
        c.collective != 0 ? "collective " + std::to_string(c.collective) : "call " + std::to_string(c.number);
    text += std::string(" (") + c.verb;
    if (c.bytes != 0) text += ", " + std::to_string(c.bytes) + " bytes";
    if (c.kind != call_kind::blocking) text += c.kind == call_kind::async ? ", async" : ", persistent";
    return text + ")";
}
inline std::string listed(const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (i == 16) return text + ", ... (" + std::to_string(ranks.size()) + " of them)";
        text += (i != 0 ? ", " : "") + std::to_string(ranks[i]);
    }
    return text;
}

} // namespace detail

// Says which rank is in which call, one line for each call with some ranks in it; ranks that are behind come first.
// Rank numbers are those of the communicator.
inline std::string compare_places(const std::vector<recorded_calls>& all) {
    std::string text;
    int number = 0;
    for (const auto& ranks : detail::by_communicator(all)) {
        const int size = ranks.front()->head.size;
        text += "communicator " + std::to_string(++number) + ", " + std::to_string(size) + " ranks:\n";
        struct place {
            std::vector<int> ranks;
            std::string waits;
        };
        std::map<std::pair<std::uint64_t, std::string>, place> places;
        std::vector<bool> is_there(static_cast<std::size_t>(size));
        for (const recorded_calls* r : ranks) {
            is_there[static_cast<std::size_t>(r->head.rank)] = true;
            const call_record* const c = place_of(*r);
            if (c == nullptr) {
                places[{0, "made no call"}].ranks.push_back(r->head.rank);
                continue;
            }
            std::uint64_t order = c->collective; // a message counts with the collective before it
            for (const call_record& other : r->calls)
                if (other.ordinal < c->ordinal) order = std::max(order, other.collective);
            const char* const how = c->outcome == call_outcome::done     ? "ended "
                                    : c->outcome == call_outcome::failed ? "failed in "
                                                                         : "in ";
            place& p = places[{2 * order + (c->outcome != call_outcome::done), how + detail::said_of(*c)}];
            p.ranks.push_back(r->head.rank);
            if (c->peer >= 0 && p.waits.size() < 200)
                p.waits += (p.waits.empty() ? "" : ", ") + std::to_string(r->head.rank) + " waits for " +
                           std::to_string(c->peer);
        }
        std::vector<int> missing;
        for (int r = 0; r < size; ++r)
            if (!is_there[static_cast<std::size_t>(r)]) missing.push_back(r);
        if (!missing.empty()) text += "  " + detail::listed(missing) + ": no records\n";
        for (const auto& [where, p] : places)
            text +=
                "  " + detail::listed(p.ranks) + ": " + where.second + (p.waits.empty() ? "" : "; " + p.waits) + "\n";
    }
    return text;
}

// A trace with one process for each communicator and one line for each of its ranks. The ranks of a host share a clock.
// Ranks of other hosts are shifted by the difference of the wall clocks, and are as inaccurate as these.
inline std::string to_chrome_trace(const std::vector<recorded_calls>& all) {
    std::map<std::uint64_t, std::int64_t> real_of; // by host: real time minus its monotonic clock
    for (const recorded_calls& r : all) real_of.try_emplace(r.head.host, r.head.real_ns - r.head.monotonic_ns);
    const auto time = [&](const recorded_calls& r, std::int64_t ns) {
        return static_cast<double>(ns - r.head.monotonic_ns) +
               static_cast<double>(r.head.monotonic_ns + real_of[r.head.host] - real_of.begin()->second);
    };
    double first = 1e300, last = 0;
    for (const recorded_calls& r : all)
        for (const call_record& c : r.calls) {
            first = std::min(first, time(r, c.begin_ns));
            last = std::max(last, time(r, std::max(c.begin_ns, c.end_ns)));
        }
    chrome_trace trace;
    int pid = chrome_trace::simulated;
    for (const auto& ranks : detail::by_communicator(all)) {
        ++pid;
        trace.name_process(pid, "communicator " + std::to_string(pid));
        for (const recorded_calls* r : ranks) trace.name_rank(pid, r->head.rank);
        for (const recorded_calls* r : ranks)
            for (const call_record& c : r->calls) {
                const double begin = time(*r, c.begin_ns);
                const double end = c.outcome == call_outcome::under_way ? last : time(*r, c.end_ns);
                std::string with =
                    "\"call\":" + std::to_string(c.number) + ",\"collective\":" + std::to_string(c.collective) +
                    ",\"bytes\":" + std::to_string(c.bytes) + ",\"algorithm\":" + chrome_trace::quoted(c.algorithm);
                if (c.outcome != call_outcome::done)
                    with += std::string(",\"outcome\":\"") +
                            (c.outcome == call_outcome::failed ? name_of(c.code) : "under way") + "\"";
                if (c.peer >= 0) with += ",\"waits_for\":" + std::to_string(c.peer);
                if (c.step >= 0)
                    with += ",\"step\":" + std::to_string(c.step) + ",\"piece\":" + std::to_string(c.piece);
                if (c.kind == call_kind::async || c.kind == call_kind::persistent)
                    trace.overlapping(pid, r->head.rank, (c.ordinal << 20) + static_cast<unsigned>(r->head.rank),
                                      c.verb, begin - first, end - begin, with);
                else trace.event(pid, r->head.rank, c.verb, begin - first, end - begin, with);
            }
    }
    return trace.text();
}

COLLX_END_NAMESPACE
