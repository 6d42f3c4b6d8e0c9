// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The start of a job on several hosts as a simulation: which words each rank says to the store, in which order, and
// what goes over the trees of connections. The same order as bootstrap/rendezvous.hpp, bootstrap/host.hpp and
// job/listener.hpp; tests/job/startup_test.cpp compares its counts with those of the library. Times come from costs
// that are given.
#pragma once

#include <cstdint>
#include <map>
#include <queue>
#include <string>
#include <vector>

namespace collx::bench {

struct startup_costs {   // microseconds
    double latency = 25; // one way, between two hosts
    double request = 6;  // the store's server, for a request and its answer
    double accept = 20;  // the same for a new connection
    double message = 8;  // either end of a connection between ranks, for a message
    double connect = 40; // either end, for a new connection, beside its way there and back
    double bytes = 1250; // per microsecond: 10 Gbit/s
    double join = 250;   // of shared memory, per rank of a host, one after the other
};

struct startup_result {
    double store_us = 0, addresses_us = 0, memory_us = 0, world_us = 0; // when each phase is over on all ranks
    long requests = 0;                                                  // at the store, of all ranks
    long connections = 0;                                               // between ranks
    long messages = 0;                                                  // over them
    int rounds = 0;     // longest chain of messages, of which each waits for the one before; a request counts as two
    int root_waits = 0; // of rank 0, one after the other, for the store
    struct words {
        int sets = 0, gets = 0, adds = 0;
    };
    std::vector<words> of_rank;
};

class startup_model {
public:
    startup_model(int ranks, int ranks_per_host, const startup_costs& c)
        : n_(ranks), per_host_(ranks_per_host), c_(c) {}

    startup_result run() {
        result_.of_rank.resize(static_cast<std::size_t>(n_));
        meet_in_store();
        std::vector<moment> at = ready_;
        tree(at, 40); // a line of the table: host, address
        result_.addresses_us = latest(at).time;
        for (auto& m : at) m.time += c_.join * per_host_;
        for (int first = 0; first < n_; first += per_host_) { // all of a host wait for all
            moment last;
            const int end = first + per_host_ < n_ ? first + per_host_ : n_;
            for (int r = first; r < end; ++r) last = later(last, at[static_cast<std::size_t>(r)]);
            for (int r = first; r < end; ++r) at[static_cast<std::size_t>(r)] = last;
        }
        result_.memory_us = latest(at).time;
        tree(at, 8);
        result_.world_us = latest(at).time;
        result_.rounds = latest(at).depth;
        return result_;
    }

private:
    struct moment {
        double time = 0;
        int depth = 0; // messages in a row so far
    };
    static moment later(moment a, moment b) {
        return {a.time > b.time ? a.time : b.time, a.depth > b.depth ? a.depth : b.depth};
    }
    static moment latest(const std::vector<moment>& all) {
        moment m;
        for (const moment& one : all) m = later(m, one);
        return m;
    }

    // ------------------------------------------------------------------ the store
    enum class word { connect, set, get, add };
    struct step {
        word what;
        std::string key;
    };
    struct event { // a request comes to the server
        moment at;
        long order;
        int rank;
        bool operator<(const event& o) const { return at.time != o.at.time ? at.time > o.at.time : order > o.order; }
    };
    std::vector<step> steps_of(int r) const {
        const std::string me = std::to_string(r);
        std::vector<step> s = {{word::connect, ""}, {word::add, "turn/" + me}};
        s.push_back({r == 0 ? word::set : word::get, "root"});
        for (int c = 4 * r + 1; c <= 4 * r + 4 && c < n_; ++c) s.push_back({word::get, "sum/" + std::to_string(c)});
        if (r != 0) s.push_back({word::set, "sum/" + me});
        s.push_back({r == 0 ? word::set : word::get, "verdict"});
        s.push_back({r == 0 ? word::get : word::add, r == 0 ? "heard" : "heard-by"});
        if (r % 2 == 0) s.push_back({word::set, "listener/" + me});
        if (r != 0) s.push_back({word::get, "listener/" + std::to_string(r & (r - 1))});
        return s;
    }
    void meet_in_store() {
        std::vector<std::vector<step>> steps;
        std::vector<std::size_t> next(static_cast<std::size_t>(n_), 0);
        std::priority_queue<event> queue;
        long order = 0;
        for (int r = 0; r < n_; ++r) {
            steps.push_back(steps_of(r));
            queue.push({{c_.latency, 1}, order++, r});
        }
        std::map<std::string, moment> set;
        std::map<std::string, std::vector<event>> waiting;
        ready_.resize(static_cast<std::size_t>(n_));
        double free = 0;
        int heard_by = 0;
        const auto answer = [&](int r, moment from) { // and the next question
            auto& at = next[static_cast<std::size_t>(r)];
            const auto& mine = steps[static_cast<std::size_t>(r)];
            const moment there{from.time + c_.latency, from.depth + 1};
            ready_[static_cast<std::size_t>(r)] = there;
            if (++at < mine.size()) queue.push({{there.time + c_.latency, there.depth + 1}, order++, r});
        };
        const auto publish = [&](const std::string& key, moment from) {
            set[key] = from;
            for (const event& w : waiting[key]) {
                free += c_.request / 2;
                answer(w.rank, {free, later(w.at, from).depth});
            }
            waiting.erase(key);
        };
        while (!queue.empty()) {
            const event e = queue.top();
            queue.pop();
            const step& s = steps[static_cast<std::size_t>(e.rank)][next[static_cast<std::size_t>(e.rank)]];
            free = (e.at.time > free ? e.at.time : free) + (s.what == word::connect ? c_.accept : c_.request);
            moment now{free, e.at.depth};
            auto& words = result_.of_rank[static_cast<std::size_t>(e.rank)];
            result_.requests += s.what != word::connect;
            words.sets += s.what == word::set;
            words.gets += s.what == word::get;
            words.adds += s.what == word::add;
            if (e.rank == 0 && s.what != word::connect) ++result_.root_waits;
            if (s.what == word::get) {
                const auto held = set.find(s.key);
                if (held == set.end()) {
                    waiting[s.key].push_back(e);
                    continue;
                }
                now.depth = later(now, held->second).depth;
            }
            answer(e.rank, now);
            if (s.what == word::set) publish(s.key, now);
            if (s.key == "heard-by" && ++heard_by == n_ - 1) { // by the last one: one request more
                ++result_.requests;
                ++words.sets;
                free += c_.request;
                publish("heard", {free + 2 * c_.latency, now.depth + 2});
            }
        }
        result_.store_us = latest(ready_).time;
    }

    // ------------------------------------------------------------------ a binomial tree: up, and the whole table down
    void tree(std::vector<moment>& at, double line) {
        const double setup = 2 * c_.latency + 2 * c_.connect;
        const auto cost = [&](double lines) { return c_.message + lines * line / c_.bytes; };
        for (int s = 1; s < n_; s *= 2) // children come in the order of their spans
            for (int r = 0; r + s < n_; r += 2 * s) {
                moment& up = at[static_cast<std::size_t>(r)];
                const moment below = at[static_cast<std::size_t>(r + s)];
                const double lines = r + 2 * s < n_ ? s : n_ - r - s;
                up = {(below.time + setup + c_.latency > up.time ? below.time + setup + c_.latency : up.time) +
                          2 * cost(lines),
                      (below.depth + 1 > up.depth ? below.depth + 1 : up.depth)};
                ++result_.messages;
                ++result_.connections;
            }
        int span = 1;
        while (span < n_) span *= 2;
        for (int s = span / 2; s > 0; s /= 2)
            for (int r = 0; r + s < n_; r += 2 * s) {
                moment& up = at[static_cast<std::size_t>(r)];
                up.time += cost(n_);
                at[static_cast<std::size_t>(r + s)] = {up.time + c_.latency + cost(n_), up.depth + 1};
                ++result_.messages;
            }
    }

    int n_, per_host_;
    startup_costs c_;
    startup_result result_;
    std::vector<moment> ready_;
};

} // namespace collx::bench
