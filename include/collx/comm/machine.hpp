// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a program may ask about the machine that COLLX_TOPOLOGY describes: the places of a communicator's ranks, the
// order in which its calls take them and why, and the traffic of its messages on each link.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <collx/comm/all_gather.hpp>
#include <collx/comm/communicator.hpp>
#include <collx/job/machine.hpp>
#include <collx/topo/traffic.hpp>

COLLX_BEGIN_NAMESPACE

// The hosts of the job with all their links; null where COLLX_TOPOLOGY is not set. It lives as long as the job.
inline const topo::graph* machine_of(communicator& c) {
    const communicator_core& core = c.internals();
    return core.home->machine ? &detail::machine_under(core).hosts.whole : nullptr;
}

// The site of each rank in that machine. Empty where there is no machine.
inline std::vector<int> sites_of(communicator& c) {
    const communicator_core& core = c.internals();
    std::vector<int> sites;
    if (core.home->machine)
        for (const int r : core.members) sites.push_back(detail::machine_under(core).site_of(r));
    return sites;
}

// The card of each site by which messages to other hosts leave, -1: none.
inline std::vector<int> cards_of_sites(communicator& c) {
    std::vector<int> cards;
    const communicator_core& core = c.internals();
    if (!core.home->machine) return cards;
    const job_machine& m = detail::machine_under(core);
    cards.assign(static_cast<std::size_t>(m.hosts.whole.size()), -1);
    for (std::size_t h = 0; h < m.kind_of.size(); ++h) {
        const std::vector<int> own = topo::own_cards(m.kinds[static_cast<std::size_t>(m.kind_of[h])]);
        for (std::size_t s = 0; s < own.size(); ++s)
            if (own[s] >= 0) cards[static_cast<std::size_t>(m.hosts.first[h]) + s] = m.hosts.first[h] + own[s];
    }
    return cards;
}

// All ranks, host after host, those of a host along its ring; in rank order where nothing is known of the links.
inline std::vector<int> order_of(communicator& c) {
    communicator_core& core = c.internals();
    if (core.known_links() != nullptr) return static_cast<const member_links&>(*core.links_found).order.along;
    std::vector<int> plain;
    for (int r = 0; r < c.size(); ++r) plain.push_back(r);
    return plain;
}

// The bytes that messages between ranks of this communicator have put on each link so far, by way_of_message(). Bytes
// that ranks write to and read from shared windows name no peer and are not counted. Collective.
inline topo::link_traffic traffic_of(communicator& c) {
    topo::link_traffic all;
    const topo::graph* const g = machine_of(c);
    if (g == nullptr) return all;
    const auto n = static_cast<std::size_t>(c.size());
    std::vector<std::uint64_t> mine(n), sent(n * n);
    for (std::size_t r = 0; r < n; ++r) mine[r] = c.sent_to(static_cast<int>(r)).bytes;
    all_gather(c, mine, sent);
    const std::vector<int> sites = sites_of(c), cards = cards_of_sites(c);
    for (std::size_t a = 0; a < n; ++a)
        for (std::size_t b = 0; b < n; ++b)
            if (const std::uint64_t bytes = sent[a * n + b]; bytes != 0 && sites[a] != sites[b])
                all.add(*g, topo::way_of_message(*g, cards, sites[a], sites[b]), static_cast<double>(bytes));
    return all;
}

// The order, the rings and their use, as text for people.
inline std::string explain_links(communicator& c) {
    communicator_core& core = c.internals();
    const links_choice* const links = core.known_links();
    if (links == nullptr) return "COLLX_TOPOLOGY is not set: ranks stand in their order\n";
    const topo::graph& g = *machine_of(c);
    const std::vector<int> sites = sites_of(c), cards = cards_of_sites(c);
    std::string text = "order:";
    for (const int r : order_of(c)) {
        const int site = sites[static_cast<std::size_t>(r)], card = cards[static_cast<std::size_t>(site)];
        text += " " + std::to_string(r) + "=" + g.name(site) + (card < 0 ? "" : "/" + g.name(card));
    }
    text += "\n";
    if (links->ring_count > 0)
        text += "long all_reduce: " + std::to_string(links->ring_count) + " rings in this order" +
                (links->beats_windows ? ""
                                      : ", but through shared windows where all ranks share memory: no link is loaded "
                                        "less by the rings") +
                "\n";
    if (links->hosts != nullptr) text += "between hosts: ranks of one place in this order, each by its own card\n";
    if (links->hosts != nullptr && links->has_rails)
        text += "long all_to_all: through the rank of the sender's host on the receiver's rail\n";
    return text;
}

COLLX_END_NAMESPACE
