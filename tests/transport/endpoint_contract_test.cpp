// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The installed contract suite for endpoints: a small endpoint in memory passes it, and the suite reports each planted
// defect with the name of the violated rule.
#include <collx/testing/endpoint_contract.hpp>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "support/patience.hpp"

using namespace collx;

namespace {

enum class defect {
    none,
    address_too_long,
    address_changes,
    messages_too_small,
    drops_what_comes_early,
    mixes_peers,
    waits_for_another_peer,
    living_peer_is_gone,
    forgets_at_its_end,
    gone_before_its_last_message,
    never_gone,
    comes_again,
    takes_others_along
};

// Messages from one rank to one other. What is under way arrives at the third move of the receiver.
struct way {
    std::deque<std::vector<std::byte>> committed, under_way, arrived;
    int moves = 0;
    bool has_room() const { return committed.size() + under_way.size() + arrived.size() < 4; }
};
// What all endpoints of one job share; the last of them takes it along.
struct wires {
    way between[3][3];
    bool has_ended[3] = {};
};

template <defect D>
struct in_memory {
    static constexpr const char* name = "in_memory";
    static constexpr bool carries(relation) { return true; }

    class endpoint {
        struct peer {
            way *to = nullptr, *from = nullptr;
            std::vector<std::byte> acquired;
            bool is_connected = false;
            std::byte* try_acquire(std::size_t bytes) {
                if (!to->has_room()) return nullptr;
                acquired.resize(bytes + 1); // never null
                return acquired.data();
            }
            void commit(std::size_t bytes) { to->committed.emplace_back(acquired.data(), acquired.data() + bytes); }
            bool is_drained() { return to->committed.empty(); }
            bool has_message() { return !from->arrived.empty(); }
            std::size_t message_bytes() { return from->arrived.front().size(); }
            const std::byte* peek(std::size_t) { return from->arrived.front().data(); }
            void release(std::size_t) { from->arrived.pop_front(); }
        };

    public:
        endpoint(int rank, int size) : rank_(rank), size_(size) {
            if (rank == 0) newest = std::make_shared<wires>();
            all_ = newest;
            for (int p = 0; p < size; ++p) {
                peers_[p].to = &all_->between[rank][p];
                peers_[p].from = &all_->between[p][rank];
            }
            if (D == defect::mixes_peers && rank == 0) peers_[1].from = peers_[2].from;
        }
        endpoint(const endpoint&) = delete;
        ~endpoint() {
            if (D != defect::forgets_at_its_end) send();
            all_->has_ended[rank_] = true;
        }
        endpoint_address address() {
            endpoint_address a;
            a.bytes = D == defect::address_too_long ? endpoint_address::most_bytes + 1 : 1;
            a.at[0] = static_cast<std::byte>(D == defect::address_changes ? ++asked_ : rank_);
            return a;
        }
        void connect(int p, const endpoint_address&) { peers_[p].is_connected = true; }
        std::size_t most_bytes() { return D == defect::messages_too_small ? 255 : 4096; }
        peer& tx(int p) { return peers_[p]; }
        peer& rx(int p) { return peers_[p]; }
        bool move() {
            send();
            bool is_waiting = false; // a message of a lower rank is not taken
            for (int p = 0; p < size_; ++p) {
                way& from = *peers_[p].from;
                if (D == defect::waits_for_another_peer && is_waiting) break;
                is_waiting = is_waiting || !from.arrived.empty();
                if (from.under_way.empty() || ++from.moves % 3 != 0) continue;
                if (D != defect::drops_what_comes_early || peers_[p].is_connected)
                    from.arrived.push_back(from.under_way.front());
                from.under_way.pop_front();
            }
            return false;
        }
        bool is_gone(int p) {
            if (D == defect::living_peer_is_gone && p == 1) return true;
            if (D == defect::never_gone) return false;
            bool has_ended = all_->has_ended[p];
            for (int q = 1; D == defect::takes_others_along && q < 3; ++q) has_ended = has_ended || all_->has_ended[q];
            if (D != defect::gone_before_its_last_message && !peers_[p].from->under_way.empty()) return false;
            return has_ended && (D != defect::comes_again || ++asked_ < 2);
        }

    private:
        static inline std::shared_ptr<wires> newest; // a job makes its endpoints in the order of the ranks
        void send() {
            for (int p = 0; p < size_; ++p) {
                way& to = *peers_[p].to;
                for (; !to.committed.empty(); to.committed.pop_front()) to.under_way.push_back(to.committed.front());
            }
        }
        int rank_, size_, asked_ = 0;
        std::shared_ptr<wires> all_;
        peer peers_[3];
    };
};

template <defect D>
testing::report found() {
    return testing::check_transport<in_memory<D>>({.most_messages = 4, .limit_ns = collx_test::patient(300'000'000)});
}
template <defect D>
void check_names(const char* rule) {
    const auto r = found<D>();
    INFO("defect " << static_cast<int>(D) << ", expected: " << rule << ", found:\n" << r.text());
    CHECK(r.names(rule));
}

} // namespace

TEST_CASE("an endpoint in memory keeps the contract") {
    const auto r = testing::check_transport<in_memory<defect::none>>(
        {.most_messages = 4, .limit_ns = collx_test::patient(1'000'000'000)});
    INFO(r.text());
    CHECK(r.is_clean());
}

TEST_CASE("each planted defect of an endpoint is found by the rule that it breaks") {
    check_names<defect::address_too_long>("address");
    check_names<defect::address_changes>("address");
    check_names<defect::messages_too_small>("limit");
    check_names<defect::drops_what_comes_early>("early");
    check_names<defect::mixes_peers>("apart");
    check_names<defect::waits_for_another_peer>("apart");
    check_names<defect::living_peer_is_gone>("alive");
    check_names<defect::forgets_at_its_end>("last_words");
    check_names<defect::gone_before_its_last_message>("gone");
    check_names<defect::never_gone>("gone");
    check_names<defect::comes_again>("gone");
    check_names<defect::takes_others_along>("alive");
}
