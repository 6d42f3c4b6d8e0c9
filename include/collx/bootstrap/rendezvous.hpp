// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How ranks that share only a store agree on a name for their job. Rank 0 publishes its settings, and each rank
// compares its own with them. Differences go up a tree through the store. Rank 0 then publishes the name or, in its
// place, what is wrong, so that all ranks that came throw the same error. No rank waits for more than four others one
// after the other; the tree has logarithmic depth (docs/design/startup.md).
#pragma once

#include <collx/bootstrap/missing_ranks.hpp>
#include <collx/bootstrap/start_watch.hpp>
#include <collx/bootstrap/store.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

// What a rank says about itself when it comes. `settings`: words NAME=VALUE that must be the same on all ranks.
struct arrival {
    kept_text settings;
    kept_text host;    // the same on ranks that share memory
    kept_text machine; // the same on ranks that can reach each other's loopback
    bool has_address = true;
};
// What all ranks know when they have met.
struct agreement {
    kept_text token; // the name of the job
    bool is_one_host = true;
};

namespace detail {

// At the deadline rank 0 names the missing ranks. The others wait this much longer for its verdict, and rank 0 waits
// this long until they have read it.
inline constexpr std::int64_t verdict_grace_ns = 250'000'000;
inline constexpr int rendezvous_fan = 4;

// Whether a word of `settings` says what protects the job: see protection.hpp.
inline bool is_of_keys(const kept_text& word) { return word.starts_with("protection=") || word.starts_with("key="); }
inline constexpr const char* security_remedy =
    "give all ranks the same COLLX_KEY_FD, COLLX_KEY_FILE or COLLX_KEY, and COLLX_SECURITY, or none of them any";

inline deadline with_grace(const deadline& until) {
    return until.at_ns < INT64_MAX - verdict_grace_ns ? deadline{until.at_ns + verdict_grace_ns} : until;
}

// What the ranks of one subtree have found: how they differ from rank 0.
struct findings {
    bool has_other_host = false, has_other_machine = false;
    bool has_other_size = false;                       // then it is unknown which ranks will come
    std::int64_t without_address = -1, first_odd = -1; // the lowest rank of each kind
    std::int64_t odd = 0;                              // number of ranks that differ from rank 0
    kept_text list, says, expected;                    // these ranks, what they say, and what rank 0 says

    kept_text text() const {
        return joined({has_other_host, " ", has_other_machine, " ", has_other_size, " ", without_address, " ",
                       first_odd, " ", odd, "\n", list, "\n", says, "\n", expected});
    }
    // False if text() has not made it.
    [[gnu::cold]] bool read(const kept_text& text) {
        std::int64_t numbers[6];
        std::size_t at = 0;
        for (std::int64_t& n : numbers) {
            const std::size_t end = text.find_first_of(" \n", at);
            if (end == kept_text::npos || !read_sum(name_view(text).substr(at, end - at), n)) return false;
            at = end + 1;
        }
        has_other_host = numbers[0] != 0;
        has_other_machine = numbers[1] != 0;
        has_other_size = numbers[2] != 0;
        without_address = numbers[3];
        first_odd = numbers[4];
        odd = numbers[5];
        for (kept_text* s : {&list, &says, &expected}) {
            const std::size_t end = text.find('\n', at);
            *s = text.substr(at, end == kept_text::npos ? end : end - at);
            if (end == kept_text::npos) return s == &expected;
            at = end + 1;
        }
        return false;
    }
    void add(const findings& f) {
        const auto lower = [](std::int64_t a, std::int64_t b) { return a < 0 || (b >= 0 && b < a) ? b : a; };
        has_other_host = has_other_host || f.has_other_host;
        has_other_machine = has_other_machine || f.has_other_machine;
        has_other_size = has_other_size || f.has_other_size;
        without_address = lower(without_address, f.without_address);
        if (f.odd == 0) return;
        if (odd == 0) {
            says = f.says;
            expected = f.expected;
        }
        odd += f.odd;
        first_odd = lower(first_odd, f.first_odd);
        if (list.size() < 100) list = joined({list, list.empty() ? "" : ", ", f.list});
    }
};

// Finds the first place where the words of `mine` and `other` differ. a, b: the two words there.
[[gnu::cold]] inline bool find_difference(const kept_text& mine, const kept_text& other, kept_text& a, kept_text& b) {
    for (std::size_t i = 0, j = 0; i < mine.size() || j < other.size();) {
        const auto word = [](const kept_text& text, std::size_t& at) {
            std::size_t end = text.find(' ', at);
            if (end == kept_text::npos) end = text.size();
            kept_text w = at < text.size() ? text.substr(at, end - at) : kept_text("nothing of the kind");
            at = end < text.size() ? end + 1 : end;
            return w;
        };
        a = word(mine, i);
        b = word(other, j);
        if (a != b) return true;
    }
    return false;
}

// What rank 0 publishes: SIZE, settings, host, machine, a line each.
[[gnu::cold]] inline kept_text words_of(const arrival& a, int size) {
    return joined({size, "\n", a.settings, "\n", a.host, "\n", a.machine});
}
// How this rank differs from rank 0.
[[gnu::cold]] inline findings compare_with_root(const kept_text& root, const arrival& me, int rank, int size) {
    kept_text line[4];
    std::size_t at = 0;
    for (kept_text& l : line) {
        const std::size_t end = root.find('\n', at);
        l = root.substr(at < root.size() ? at : root.size(), end == kept_text::npos ? end : end - at);
        at = end == kept_text::npos ? root.size() : end + 1;
    }
    findings f;
    f.has_other_host = line[2] != me.host;
    f.has_other_machine = line[3] != me.machine;
    if (!me.has_address) f.without_address = rank;
    f.has_other_size = line[0] != joined({size});
    if (f.has_other_size) {
        f.says = joined({size, " ranks"});
        f.expected = line[0];
    } else if (!find_difference(me.settings, line[1], f.says, f.expected)) return f;
    f.odd = 1;
    f.first_odd = rank;
    f.list = joined({rank});
    return f;
}

// The verdict of rank 0 begins with one letter. k, s: the name of a job on one host or several follows. m: mismatch,
// x: of keys, e: environment, t: timeout; the guilty rank, a blank and the text follow.
[[gnu::cold]] inline agreement read_verdict(const kept_text& verdict, int rank) {
    if (verdict.size() == 33 && (verdict[0] == 'k' || verdict[0] == 's')) return {verdict.substr(1), verdict[0] == 'k'};
    const std::size_t blank = verdict.find(' ');
    std::int64_t guilty = -1;
    if (blank == kept_text::npos || blank == 0 || !read_sum(name_view(verdict).substr(1, blank - 1), guilty))
        fail(errc::protocol, rank, 0, "use a store of its own for each job",
             "rank 0 left something unknown in the store");
    const errc code = verdict[0] == 't'   ? errc::timeout
                      : verdict[0] == 'e' ? errc::environment
                      : verdict[0] == 'x' ? errc::security
                                          : errc::mismatch;
    if (code == errc::timeout) fail_missing(verdict.c_str() + blank + 1, rank, static_cast<int>(guilty));
    const char* remedy = "give all ranks the same size, settings and build of collx";
    if (code == errc::environment)
        remedy = "set COLLX_ADDRESS on every host to its own address, and give the job a key, see docs/security.md";
    if (code == errc::security) remedy = security_remedy;
    fail(code, rank, static_cast<int>(guilty), remedy, "%s", verdict.c_str() + blank + 1);
}

// One rank's part in a meeting in a store. `turn`: prefix of the meeting's keys.
class rendezvous_tree {
public:
    rendezvous_tree(any_store& store, int rank, int size, const deadline& until, const kept_text& turn,
                    start_watch* all)
        : store_(store), rank_(rank), size_(size), until_(until), turn_(turn), all_(all) {}

    // Waits for a key that rank `whom` sets. With a watch the error is that of all ranks.
    [[gnu::cold]] kept_text get(const char* key, int whom, const deadline& until) {
        return all_ != nullptr ? all_->get(joined({turn_, key}), whom)
                               : kept_text(store_.get(joined({turn_, key}), until));
    }

    // Adds what the ranks below this one have found to `f`. Stops waiting for them once one has another number of
    // ranks. False when one has not come in time.
    [[gnu::cold]] bool gather(findings& f) {
        for (int c = rank_ * rendezvous_fan + 1; c <= rank_ * rendezvous_fan + rendezvous_fan && c < size_; ++c) {
            if (f.has_other_size) return true;
            findings below;
            try {
                if (!below.read(get(joined({"sum/", c}).c_str(), c, until_))) below = {};
            } catch (const timed_out&) {
                if (all_ != nullptr) throw;
                return false;
            }
            f.add(below);
        }
        return true;
    }
    // The verdict of rank 0. `number`: which meeting of the store this is.
    [[gnu::cold]] kept_text verdict(const findings& f, bool have_all_come, std::int64_t number) {
        if (f.odd != 0)
            return joined({is_of_keys(f.says) ? "x" : "m", f.first_odd, f.odd > 1 ? " ranks " : " rank ", f.list,
                           f.odd > 1 ? " say " : " says ", f.says, ", rank 0 says ", f.expected});
        if (!have_all_come) return missing(number);
        if (f.has_other_host && f.has_other_machine && f.without_address >= 0)
            return joined({"e", f.without_address, " the ranks are on several machines, and rank ", f.without_address,
                           " has only an address within its own"});
        return joined({f.has_other_host ? "s" : "k", random_token()});
    }

private:
    // The deadline has passed, so this only checks which ranks are there, and not for long. A rank that has published
    // what it found has heard from all ranks below it. So only the others are checked, and the way to a missing rank is
    // short. They are in ascending order.
    [[gnu::cold]] kept_text missing(std::int64_t number) {
        kept_text late;
        int first = -1, count = 0, silent = -1;
        const deadline enough = deadline::in_ns(verdict_grace_ns / 2);
        growing_array<int> open;
        add_open_below(rank_, open);
        std::size_t at = 0;
        for (; at < open.size() && (at == 0 || !enough.passed()); ++at) {
            const int r = open[at];
            add_open_below(r, open);
            std::int64_t its = 0;
            const bool is_there = has(joined({"collx/turn/", r}), its);
            if (is_there && its < number) return joined({"t", r, " ", fewer_starts_text(r, its, number)});
            if (is_there) {
                silent = r; // the last one has no other below it
                continue;
            }
            if (count++ == 0) first = r;
            if (late.size() < 100) late = joined({late, late.empty() ? "" : ", ", r});
        }
        const bool are_all = at == open.size();
        if (count == 0 && silent < 0) return "t-1 the ranks came to the store, the last of them when the time was over";
        if (count == 0 && !are_all) return "t-1 not all ranks came to the store";
        if (count == 0) return joined({"t", silent, " rank ", silent, " came to the store and says no more"});
        return joined({"t", first, are_all ? " " : " at least ", count, " of ", size_,
                       " ranks did not come to the store: ", late, late.size() < 100 && are_all ? "" : " and more"});
    }
    // Adds the ranks directly below that have not published what they found.
    [[gnu::cold]] void add_open_below(int rank, growing_array<int>& open) {
        std::int64_t any = 0;
        for (int c = rank * rendezvous_fan + 1; c <= rank * rendezvous_fan + rendezvous_fan && c < size_; ++c)
            if (!has(joined({turn_, "sum/", c}), any)) open.push_back(c);
    }
    // Whether there is such a key; n: the number that it has, if it is one.
    bool has(const kept_text& key, std::int64_t& n) {
        try {
            (void)read_sum(store_.get(key, deadline{1}), n);
            return true;
        } catch (const timed_out&) {
            return false;
        }
    }

    any_store& store_;
    int rank_, size_;
    deadline until_;
    kept_text turn_;
    start_watch* all_;
};

} // namespace detail

namespace detail {

// For a process manager, which knows the ranks and their number. Whether they are on one host is found out later. Cost:
// one value, one barrier, one look. Errors: those of the store (only its process manager knows which ranks are
// missing); mismatch on the rank that differs from rank 0.
[[gnu::cold]] inline agreement come_together_in_order(any_store& store, int rank, int size, const deadline& until,
                                                      const arrival& me) {
    const kept_text key = joined({"collx/job/", store.next_turn()});
    if (rank == 0) store.set(key, joined({random_token(), words_of({me.settings, "", "", true}, size)}));
    store.barrier(key, size, until);
    const kept_text said = store.get(key, until);
    if (said.size() < 33)
        fail(errc::protocol, rank, 0, "build all ranks with the same version of collx",
             "rank 0 left something unknown in the store");
    const findings f = compare_with_root(said.substr(32), {me.settings, "", "", true}, rank, size);
    // A rank with another key continues to where all ranks compare keys once more, so that all of them get the error.
    if (f.odd != 0 && !is_of_keys(f.says))
        fail(errc::mismatch, rank, 0, "give all ranks the same size, settings and build of collx",
             "rank %d says %s, rank 0 says %s", rank, f.says.c_str(), f.expected.c_str());
    return {said.substr(0, 32), false};
}

} // namespace detail

// Agrees on the name of the job, random and the same on all `size` ranks, and on whether they are on one host.
// Collective; may be called again with the same store for the next job. Ensures: when it returns on rank 0 all ranks
// have the name, so rank 0 may close the store. Errors: timeout (names the missing ranks) · mismatch (sizes or settings
// differ; names the ranks) · security (keys differ) · environment (hosts that cannot reach each other) · those of the
// store. Cost: five words in the store per rank, on rank 0 about 4 log4(size) waits. all: the watch of the whole start;
// with it, not rank 0 but start_watch::finish() waits until all have the name. See also come_together_in_order().
[[gnu::cold]] inline agreement come_together(any_store& store, int rank, int size, const deadline& until,
                                             const arrival& me, start_watch* all = nullptr) {
    if (store.has_order()) return detail::come_together_in_order(store, rank, size, until, me);
    if (size < 1 || rank < 0 || rank >= size)
        fail(errc::invalid_argument, rank, -1, "ranks are 0 to size - 1", "rank %d of %d ranks", rank, size);
    // Each rank counts the meetings of this store by itself. If two processes have one rank number, one of them counts
    // a meeting that the others never reach.
    const std::int64_t number = store.add(detail::joined({"collx/turn/", rank}), 1);
    const kept_text turn = detail::joined({"collx/", number, "/"});
    if (all != nullptr && !all->is_on()) all = nullptr;
    if (all != nullptr) all->begin(number, turn);
    detail::rendezvous_tree tree(store, rank, size, until, turn, all);
    detail::findings f;
    if (!me.has_address) f.without_address = rank;
    if (rank == 0) {
        store.set(detail::joined({turn, "root"}), detail::words_of(me, size));
        const bool have_all_come = tree.gather(f);
        const kept_text verdict = tree.verdict(f, have_all_come, number);
        store.set(detail::joined({turn, "verdict"}), verdict);
        const bool is_good = verdict[0] == 'k' || verdict[0] == 's';
        try {
            if (size > 1 && (all == nullptr || !is_good))
                (void)store.get(detail::joined({turn, "heard"}),
                                is_good ? until : deadline::in_ns(detail::verdict_grace_ns));
        } catch (const timed_out&) {
            if (is_good)
                fail(errc::timeout, 0, -1, "see the output of the ranks",
                     "not all ranks have read the name of the job in the store");
        }
        return detail::read_verdict(verdict, 0);
    }
    kept_text verdict;
    try {
        f = detail::compare_with_root(tree.get("root", 0, detail::with_grace(until)), me, rank, size);
        if (tree.gather(f)) store.set(detail::joined({turn, "sum/", rank}), f.text());
        verdict = tree.get("verdict", 0, detail::with_grace(until));
    } catch (const timed_out&) {
        if (all != nullptr) throw;
        fail(errc::timeout, rank, 0, "is every rank started once, with the same store, and is the store new?",
             "rank 0 published no job in the store");
    }
    const bool is_good = verdict[0] == 'k' || verdict[0] == 's';
    if ((all == nullptr || !is_good) && store.add(detail::joined({turn, "heard-by"}), 1) == size - 1)
        store.set(detail::joined({turn, "heard"}), "");
    return detail::read_verdict(verdict, rank);
}

template <OwnStore S>
agreement come_together(S& store, int rank, int size, const deadline& until, const arrival& me) {
    detail::store_face<S> face(store);
    return come_together(static_cast<any_store&>(face), rank, size, until, me);
}

// Returns only the name that come_together() agrees on.
template <Store S>
kept_text rendezvous(S& store, int rank, int size, const deadline& until) {
    return come_together(store, rank, size, until, arrival{}).token;
}

COLLX_END_NAMESPACE
