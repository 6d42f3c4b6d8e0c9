// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Domains, where kernels reach some peers and not all. Inside a domain every kernel reaches every peer. Holds the
// division into domains, the exchange memory of this rank's domain, and a communicator along each rail. A domain is a
// host, the hosts of one NVLink fabric, or the ranks of a host with peer access. Knows no collective and no kernel.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <collx/comm/split.hpp>
#include <collx/core/clock.hpp>
#include <collx/core/joined.hpp>
#include <collx/gpu/route.hpp>
#include <collx/job/try_together.hpp>
#include <collx/sched/node_map.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

// The number of each rank's domain, that of its first rank. Ranks with the same `first` are in one domain; one with
// more ranks than a kernel takes is cut evenly.
inline std::vector<int> numbers_of_domains(const std::vector<int>& first) {
    std::vector<int> size(first.size()), begin(first.size()), place, number;
    for (const int f : first) place.push_back(size[static_cast<std::size_t>(f)]++);
    for (std::size_t r = 0; r < first.size(); ++r) {
        const auto f = static_cast<std::size_t>(first[r]);
        const int parts = (size[f] + device::max_ranks - 1) / device::max_ranks, each = (size[f] + parts - 1) / parts;
        if (place[r] % each == 0) begin[f] = static_cast<int>(r);
        number.push_back(begin[f]);
    }
    return number;
}

// There are as many rails as the smallest domain has ranks; rail k joins the k-th ranks of all domains. Larger domains
// have ranks that are on no rail. Their data to and from other domains goes through ranks that are on one.
template <device::GpuRuntime Runtime>
class gpu_domains {
public:
    // Makes the domains. Collective. Null on all ranks if there is one domain, if each has one rank, if some pair
    // inside a domain does not reach each other, or if there is no room for more communicators.
    static sole_ptr<gpu_domains> find(const Runtime& r, communicator& side, const gpu_route<Runtime>& whole,
                                      const device_settings& s, const device::exchange_shape& shape) {
        communicator_core& core = side.internals();
        const auto n = static_cast<std::size_t>(side.size());
        // Some kinds of handles work inside one host only, so the ranks of a host are tried together first, and then
        // the ranks that each has reached so far.
        std::int32_t lowest[2] = {side.rank(), whole.first_reached() < 0 ? side.rank() : whole.first_reached()};
        for (int q = side.rank(); q >= 0; --q)
            if (core.home->place(core.members[static_cast<std::size_t>(q)]) >= 0) lowest[0] = q;
        if (lowest[1] < lowest[0]) lowest[0] = lowest[1];
        std::vector<int> first[2] = {std::vector<int>(n), std::vector<int>(n)};
        core.exchange_each(lowest, [&](int q, const std::int32_t(&its)[2]) {
            for (int k = 0; k < 2; ++k) first[k][static_cast<std::size_t>(q)] = its[k];
        });
        auto made = attempt(r, side, node_map(numbers_of_domains(first[0])), s, shape);
        return made != nullptr || first[0] == first[1]
                   ? std::move(made)
                   : attempt(r, side, node_map(numbers_of_domains(first[1])), s, shape);
    }

    gpu_domains(const Runtime& r, sole_ptr<communicator> inside, sole_ptr<communicator> rail, node_map map, int me)
        : runtime_(r), inside_(std::move(inside)), rail_(std::move(rail)), map_(std::move(map)),
          node_(map_.view().node_of(me)), route_(r, *inside_) {}
    gpu_domains(const gpu_domains&) = delete;

    node_view map() const { return map_; }
    int rails() const { return map().smallest(); }
    bool is_on_rail() const { return rank() < rails(); }
    int lanes() const { return lanes_; }
    // This rank's domain.
    int size() const { return inside_->size(); }
    int rank() const { return inside_->rank(); }
    communicator& inside() { return *inside_; }
    const gpu_route<Runtime>& route() const { return route_; }

    // The number of blocks that go along a rail, of the ranks of one domain or of all: the block of rank r goes along
    // rail local_of(r) modulo the rails.
    int blocks(int node, int rail) const { return (map().size(node) - rail + rails() - 1) / rails(); }
    int most_blocks() const {
        int n = 0;
        for (int d = 0; d < map().nodes(); ++d) n += blocks(d, 0);
        return n;
    }

    kept_text text() const {
        const node_view v = map();
        const kept_text more = v.is_even() ? kept_text() : joined({" to ", v.largest()});
        return joined(
            {"kernels inside ", v.nodes(), " domains of ", v.smallest(), more, " ranks, staged between them: "});
    }

    links::traffic sent_to(int peer) const { // along this rank's rail; peer: its number among all ranks
        const node_view v = map();
        return is_on_rail() && v.local_of(peer) == rank() ? rail_->sent_to(v.node_of(peer)) : links::traffic{};
    }
    // Allocates the buffers for data to the rails (outgoing), and from the rails for other ranks (incoming).
    void make_room(std::size_t bytes) {
        room_bytes_ = bytes;
        for (std::byte*& p : room_) p = runtime_.allocate(bytes);
    }
    template <class T>
    T* outgoing() const {
        return reinterpret_cast<T*>(room_[0]);
    }
    template <class T>
    T* incoming() const {
        return reinterpret_cast<T*>(room_[1]);
    }
    std::size_t room_bytes() const { return room_bytes_; }

    // Calls f(the communicator of this rank's rail), on the proxy's thread. Its errors are reported in the numbers of
    // all ranks.
    template <class F>
    void on_rail(communicator& side, F&& f) {
        try {
            f(*rail_);
        } catch (const error& e) {
            // A peer that gave up because of another rank has reported that rank to all, but may have left the rail
            // before the report arrives here.
            communicator_core& c = side.internals();
            for (const deadline until = deadline::in_ns(250'000'000); !until.passed(); nap_ns(200'000))
                for (communicator_core* other = &c; other != nullptr; other = other->failure_parent) {
                    (void)other->net.move_remote();
                    if (const failure cause = other->net.failed()) c.explain(cause, -1);
                }
            if (e.peer() >= 0) c.explain(failure(e.code(), map().rank_of(e.peer(), rank())), -1);
            throw;
        }
    }
    // Ends this rank's part in exchanges between domains: on its rail and, with ranks of other hosts, on `side`.
    // Requires: no call under way there, and none to come.
    void leave_rail(communicator_core& side) {
        if (side.net.remote() != nullptr) side.net.remote()->say_bye();
        rail_ = sole_ptr<communicator>();
    }
    // A failure of the proxy's communicator, or of the program's, ends waits inside the domain and on the rail, too.
    void heed(communicator_core* side) {
        inside_->internals().failure_parent = side;
        if (is_on_rail()) rail_->internals().failure_parent = side;
    }
    int rank_of(int inner) const { return inner < 0 ? inner : map().rank_of(node_, inner); } // among all ranks
    int node() const { return node_; }                                                       // this rank's domain

    void unmap() { route_.unmap(); }
    void close(bool may_free_exchange) {
        route_.close(may_free_exchange);
        for (std::byte*& p : room_)
            if (p != nullptr) runtime_.free(std::exchange(p, nullptr));
    }
    void abandon() { route_.abandon(); }

private:
    static sole_ptr<gpu_domains> attempt(const Runtime& r, communicator& side, node_map map, const device_settings& s,
                                         device::exchange_shape shape) {
        const node_view v = map;
        if (v.nodes() < 2 || v.largest() < 2) return nullptr;
        const int node = v.node_of(side.rank()), local = v.local_of(side.rank());
        sole_ptr<communicator> inside, rail;
        communicator_core& core = side.internals();
        if (!all_could(core, [&] { inside = make_sole<communicator>(side.split(node, local)); })) return nullptr;
        if (!all_could(core,
                       [&] { rail = make_sole<communicator>(side.split(local < v.smallest() ? local : -1, node)); }))
            return nullptr;
        auto made = make_sole<gpu_domains>(r, std::move(inside), std::move(rail), std::move(map), side.rank());
        shape.set_ranks(made->size(), s.stage_bytes);
        const bool could = all_could(core, [&] {
            made->lanes_ = made->route_.choose(s, shape.bytes());
            if (!made->route_.is_direct())
                fail(errc::unsupported, side.rank(), -1, "", "no kernels inside this domain");
        });
        if (could) return made;
        // Memory is freed after all have closed it; no kernel ran.
        made->route_.unmap();
        (void)all_could(core, [] {});
        made->route_.close(true);
        return nullptr;
    }
    template <class F>
    static bool all_could(communicator_core& c, F&& f) {
        return try_together(c, f).first < 0;
    }

    Runtime runtime_;
    sole_ptr<communicator> inside_, rail_; // the second is empty where this rank is on no rail
    node_map map_;
    int node_;
    gpu_route<Runtime> route_; // inside the domain
    int lanes_ = 1;
    std::byte* room_[2] = {};
    std::size_t room_bytes_ = 0;
};

} // namespace detail
COLLX_END_NAMESPACE
