// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine under a job. Each rank reads the file that COLLX_TOPOLOGY names on its host, and all learn whether all
// could. Machines that differ are shown to all ranks once. While a communicator is made, one rank finds what the
// machine says of its ranks and shows it to the others, so that they agree even if their compilers treat fractions
// differently.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <collx/bootstrap/environment.hpp>
#include <collx/core/provided.hpp>
#include <collx/core/regular_file.hpp>
#include <collx/job/communicator_core.hpp>
#include <collx/plan/by_links.hpp>
#include <collx/topo/member_order.hpp>
#include <collx/topo/nccl_topology.hpp>

COLLX_BEGIN_NAMESPACE

// The machine of all ranks of a job.
struct job_machine final : detail::job_attachment {
    std::vector<topo::graph> kinds;       // machines that differ
    std::vector<int> kind_of;             // by host; hosts are numbered in the order of their first ranks
    std::vector<topo::standing> standing; // by rank of the job; sites of the host's kind
    topo::joined_hosts hosts;             // all together
    int site_of(int rank) const {
        const topo::standing& s = standing[static_cast<std::size_t>(rank)];
        return hosts.first[static_cast<std::size_t>(s.host)] + s.site;
    }
};

// What the machine says of one communicator.
struct member_links final : detail::job_attachment {
    topo::member_order order;
    std::vector<rank_order> rings;
    std::vector<order_view> views;
    std::vector<node_map> hosts; // one, of several hosts of which some have several ranks
    links_choice choice;
};

namespace detail {

inline constexpr std::size_t most_topology_bytes = 1 << 20;

// Every rank shows bytes to all, in as many exchanges as the longest text takes. All ranks know its length, `most`.
// Calls visit(rank, at, part, bytes).
template <class Visit>
void show_parts(communicator_core& c, const std::string& mine, std::size_t most, Visit&& visit) {
    constexpr std::size_t part = 112;
    for (std::size_t at = 0; at < most; at += part) {
        char line[part] = {};
        if (at < mine.size()) std::memcpy(line, mine.data() + at, std::min(part, mine.size() - at));
        c.exchange(line, sizeof line,
                   [&](int r, const std::byte* theirs) { visit(r, at, reinterpret_cast<const char*>(theirs), part); });
    }
}

// The machine of one rank: what its file says, and its site there.
struct own_machine {
    std::string file, text;
    topo::graph machine;
    int site = 0;
};

// CUDA_VISIBLE_DEVICES may be "4" for all ranks, or "0,2,4,6" with one number for each place.
inline int visible_gpu(const char* list, int rank, int place) {
    std::vector<int> numbers;
    for (const char* at = list;; ++at) {
        const std::int64_t n = read_digits(at, 4095);
        if (n < 0 || (*at != '\0' && *at != ','))
            fail(errc::invalid_argument, rank, -1, "set COLLX_GPU to this rank's number in the file",
                 "CUDA_VISIBLE_DEVICES=%s names no numbers", printable(list).text);
        numbers.push_back(static_cast<int>(n));
        if (*at == '\0') break;
    }
    if (numbers.size() == 1) return numbers[0];
    if (place >= static_cast<int>(numbers.size()))
        fail(errc::invalid_argument, rank, -1, "set COLLX_GPU, or start fewer ranks",
             "CUDA_VISIBLE_DEVICES=%s has no GPU for the %d. rank of its host", printable(list).text, place + 1);
    return numbers[static_cast<std::size_t>(place)];
}

// This rank's site: the GPU that COLLX_GPU names, else the one at this rank's place among the `here` ranks of this
// host, of those that CUDA_VISIBLE_DEVICES leaves.
inline int own_site(const own_machine& m, const environment& env, int rank, int place, int here) {
    const std::vector<int> sites = topo::places_of_ranks(m.machine);
    const int count = static_cast<int>(sites.size());
    if (m.machine.at(sites[0]).type != topo::site_type::gpu)
        return sites[static_cast<std::size_t>(place * count / here)];
    int gpu = place;
    if (const char* number = env.get("COLLX_GPU"))
        gpu = static_cast<int>(read_number(variable_named("COLLX_GPU"), number));
    else if (const char* visible = env.get("CUDA_VISIBLE_DEVICES")) gpu = visible_gpu(visible, rank, place);
    if (gpu >= count)
        fail(errc::invalid_argument, rank, -1, "set COLLX_GPU, or start as many ranks as there are GPUs",
             "%s has %d GPUs, and this rank, the %d. of %d on its host, would have GPU %d", m.file.c_str(), count,
             place + 1, here, gpu);
    return sites[static_cast<std::size_t>(gpu)];
}

// The text of a file of at most 1 MiB. Errors: environment.
inline std::string read_topology(const std::string& file, int rank) {
    std::string text;
    if (const char* why = read_regular_file(file.c_str(), most_topology_bytes + 1, text))
        fail(errc::environment, rank, -1, "name a file that this rank may read", "COLLX_TOPOLOGY=%s: %s",
             printable(file.c_str()).text, why);
    if (text.size() > most_topology_bytes)
        fail(errc::environment, rank, -1, "give one host's machine", "COLLX_TOPOLOGY=%s has more than %zu bytes",
             printable(file.c_str()).text, most_topology_bytes);
    return text;
}

// Requires: COLLX_TOPOLOGY is set. Errors: environment · invalid_argument, with the line.
inline own_machine read_own_machine(const environment& env, int rank, int place, int here) {
    own_machine own;
    own.file = env.get("COLLX_TOPOLOGY");
    own.text = read_topology(own.file, rank);
    own.machine = topo::read_nccl_topology(own.text, own.file);
    for (int s = 0; s < own.machine.size(); ++s)
        if (own.machine.at(s).host != 0)
            fail(errc::invalid_argument, rank, -1, "give each host a file of its own", "%s describes several hosts",
                 own.file.c_str());
    own.site = own_site(own, env, rank, place, here);
    return own;
}

// The name of this rank's network card, empty: none is known. Errors in the file are reported when the ranks merge
// theirs.
inline kept_text own_card(const environment& env, int place, int here) {
    try {
        if (env.get("COLLX_TOPOLOGY") == nullptr) return {};
        const own_machine own = read_own_machine(env, -1, place, here);
        const int card = topo::own_cards(own.machine)[static_cast<std::size_t>(own.site)];
        if (card >= 0) return kept_text(own.machine.name(card).c_str());
    } catch (const error&) {
    }
    return {};
}

inline void look_up_links(communicator_core& c, bool together);

class machine_of_job {
public:
    machine_of_job(communicator_core& c, const environment& env) : c_(c), env_(env) {}

    void merge() {
        std::exception_ptr wrong;
        try {
            read();
        } catch (const error& e) {
            wrong = std::current_exception();
            mine_.code = static_cast<std::int32_t>(e.code());
            const char* why = e.what();
            if (std::strncmp(why, "collx: ", 7) == 0) why += 7;
            std::snprintf(mine_.why, sizeof mine_.why, "%s", why);
        } catch (const std::exception& e) { // no memory
            wrong = std::current_exception();
            mine_.code = static_cast<std::int32_t>(errc::resource);
            std::snprintf(mine_.why, sizeof mine_.why, "%s", e.what());
        }
        all_.resize(static_cast<std::size_t>(c_.net.size()));
        c_.exchange_each(mine_, [&](int r, const word& its) { all_[static_cast<std::size_t>(r)] = its; });
        if (wrong) std::rethrow_exception(wrong);
        for (int r = 0; r < c_.net.size(); ++r)
            if (const word& w = all_[static_cast<std::size_t>(r)]; w.code >= 0)
                fail(static_cast<errc>(w.code), c_.net.rank(), r, "see what that rank says",
                     "rank %d cannot take its COLLX_TOPOLOGY: %.*s", r, static_cast<int>(sizeof w.why), w.why);
        require_one_for_each_host();
        gather();
    }

private:
    struct word {
        std::int32_t code = -1; // an errc, -1: all is well
        std::int32_t site = 0;
        std::uint64_t hash = 0;
        std::uint32_t bytes = 0;
        char why[92] = "";
    };
    static_assert(sizeof(word) <= signal_line::inline_bytes);

    void read() {
        int place = 0, here = 0;
        for (int r = 0; r < c_.net.size(); ++r)
            if (host(r) == host(rank())) {
                place += r < rank();
                ++here;
            }
        own_ = read_own_machine(env_, rank(), place, here);
        mine_.site = own_.site;
        mine_.hash = topo::content_hash(own_.machine);
        mine_.bytes = static_cast<std::uint32_t>(own_.text.size());
    }

    void require_one_for_each_host() const {
        for (int r = 0; r < c_.net.size(); ++r)
            for (int q = 0; q < r; ++q)
                if (host(q) == host(r) &&
                    all_[static_cast<std::size_t>(q)].hash != all_[static_cast<std::size_t>(r)].hash)
                    fail(errc::mismatch, rank(), r, "give the ranks of a host one file",
                         "ranks %d and %d are on one host, and their files of COLLX_TOPOLOGY differ", q, r);
    }

    void gather() {
        auto made = make_sole<job_machine>();
        std::vector<int> hosts, owners; // host numbers of the job; the first rank of each kind
        for (int r = 0; r < c_.net.size(); ++r) {
            const word& w = all_[static_cast<std::size_t>(r)];
            std::size_t h = 0, k = 0;
            while (h < hosts.size() && hosts[h] != host(r)) ++h;
            while (k < owners.size() && all_[static_cast<std::size_t>(owners[k])].hash != w.hash) ++k;
            if (k == owners.size()) owners.push_back(r);
            if (h == hosts.size()) {
                hosts.push_back(host(r));
                made->kind_of.push_back(static_cast<int>(k));
            }
            made->standing.push_back({static_cast<int>(h), w.site});
        }
        std::vector<std::string> texts(owners.size());
        std::size_t most = 0;
        for (std::size_t k = 0; owners.size() > 1 && k < owners.size(); ++k) {
            const std::size_t bytes = all_[static_cast<std::size_t>(owners[k])].bytes;
            if (bytes > most_topology_bytes) c_.give_up(failure(errc::protocol, owners[k]), owners[k]);
            texts[k].resize(bytes);
            most = std::max(most, texts[k].size());
        }
        bool is_owner = false;
        for (const int r : owners) is_owner = is_owner || r == rank();
        show_parts(c_, is_owner ? own_.text : std::string(), most,
                   [&](int r, std::size_t at, const char* part, std::size_t bytes) {
                       for (std::size_t k = 0; k < owners.size(); ++k)
                           if (owners[k] == r && at < texts[k].size())
                               std::memcpy(texts[k].data() + at, part, std::min(bytes, texts[k].size() - at));
                   });
        for (std::size_t k = 0; k < owners.size(); ++k)
            made->kinds.push_back(
                all_[static_cast<std::size_t>(owners[k])].hash == mine_.hash
                    ? own_.machine
                    : topo::read_nccl_topology(texts[k], "the file of rank " + std::to_string(owners[k])));
        std::vector<const topo::graph*> by_host;
        for (const int k : made->kind_of) by_host.push_back(&made->kinds[static_cast<std::size_t>(k)]);
        for (int r = 0; r < c_.net.size(); ++r) {
            const topo::standing& s = made->standing[static_cast<std::size_t>(r)];
            if (s.site < 0 || s.site >= by_host[static_cast<std::size_t>(s.host)]->size())
                c_.give_up(failure(errc::protocol, r), r);
        }
        made->hosts = topo::join_hosts(by_host);
        c_.home->machine = std::move(made);
        look_up_links(c_, true);
    }

    int rank() const { return c_.net.rank(); }
    int host(int r) const {
        const auto& of = c_.home->hosts.host_of;
        return of.empty() ? 0 : of[r];
    }

    communicator_core& c_;
    const environment& env_;
    own_machine own_;
    word mine_;
    std::vector<word> all_;
};

inline const job_machine& machine_under(const communicator_core& c) {
    return static_cast<const job_machine&>(*c.home->machine);
}

// Numbers for the other ranks: has_rails, is_complete, whether rings are faster, how many rings; then all members in
// the order along the ring.
inline std::vector<std::int32_t> found_by_search(const communicator_core& c) {
    const job_machine& m = machine_under(c);
    std::vector<topo::standing> members;
    for (const int r : c.members) members.push_back(m.standing[static_cast<std::size_t>(r)]);
    std::vector<const topo::graph*> by_host;
    for (const int k : m.kind_of) by_host.push_back(&m.kinds[static_cast<std::size_t>(k)]);
    const topo::member_order o = topo::order_members(members, by_host);
    std::vector<std::int32_t> says{o.has_rails, o.is_complete, o.ring_s < 0.8 * o.direct_s,
                                   static_cast<std::int32_t>(o.rings.size())};
    says.insert(says.end(), o.along.begin(), o.along.end());
    return says;
}

[[gnu::cold]] inline void look_up_links(communicator_core& c, bool together) {
    const auto n = static_cast<std::size_t>(c.net.size());
    std::vector<std::int32_t> says(4 + n);
    std::string mine(together ? says.size() * sizeof says[0] : 0, '\0');
    for (std::size_t r = 0; r < n; ++r) says[4 + r] = static_cast<std::int32_t>(r);
    if (!together || c.net.rank() == 0) try {
            says = found_by_search(c);
        } catch (const std::exception&) { // no memory: in rank order, as with no ring
        }
    if (c.net.rank() == 0) std::memcpy(mine.data(), says.data(), mine.size());
    show_parts(c, mine, mine.size(), [&](int r, std::size_t at, const char* part, std::size_t bytes) {
        if (r == 0) std::memcpy(reinterpret_cast<char*>(says.data()) + at, part, std::min(bytes, mine.size() - at));
    });
    // Between hosts, other ranks have passed them on.
    bool is_sound = says[3] >= 0 && says[3] <= 2;
    for (std::size_t r = 0; r < n; ++r) is_sound = is_sound && says[4 + r] >= 0 && says[4 + r] < c.net.size();
    if (!is_sound) c.give_up(failure(errc::protocol, 0), 0);
    auto made = make_sole<member_links>();
    made->order.has_rails = says[0] != 0;
    made->order.is_complete = says[1] != 0;
    made->order.along.assign(says.begin() + 4, says.end());
    if (!made->order.is_complete && c.net.rank() == 0)
        std::fprintf(stderr, "collx: warning: no ring joins the GPUs of this communicator on some host in "
                             "COLLX_TOPOLOGY; its ranks stay in their order there\n");
    const std::vector<int>& along = made->order.along;
    for (int k = 0; k < says[3]; ++k)
        made->rings.emplace_back(k == 0 ? along : std::vector<int>(along.rbegin(), along.rend()));
    for (const rank_order& r : made->rings) made->views.push_back(r.view());
    if (const node_map* hosts = c.net.crowded_hosts()) {
        const node_view at = *hosts;
        growing_array<int> node_of, order;
        for (int r = 0; r < c.net.size(); ++r) node_of.push_back(at.node_of(r));
        for (const int r : along) order.push_back(r);
        made->hosts.emplace_back(node_of, order);
    }
    made->choice = {select_by_links, made->views.data(), static_cast<int>(made->views.size()),
                    says[2] != 0,    says[0] != 0,       made->hosts.empty() ? nullptr : made->hosts.data()};
    c.by_links = &made->choice;
    c.links_found = std::move(made);
}

inline constexpr topology_component topology_of_file{
    [](communicator_core& c) { machine_of_job(c, environment()).merge(); }, look_up_links, own_card};
inline const bool has_topology_of_file = provided(topology, &topology_of_file);

} // namespace detail

COLLX_END_NAMESPACE
