// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_sim: predicts how long a collective takes on a machine, by an algorithm and a cost model, and which links it
// fills. Runs no collective and measures nothing.
#include <CLI/CLI.hpp>

#include <collx/sim/simulate.hpp>
#include <collx/sim/traces.hpp>
#include <collx/topo/rings.hpp>

#include <cstdio>
#include <optional>
#include <set>

#include "sim/algorithms.hpp"
#include "sim/devices.hpp"
#include "sim/published.hpp"
#include "sim/report.hpp"
#include "sim/training.hpp"
#include "support/command_line.hpp"
#include "topo/source.hpp"

namespace {

using namespace collx;

struct request {
    tools::machine_choice machine;
    std::vector<int> ranks;
    std::vector<std::string> lost;
    std::string rails;
    std::string op = "all_reduce", algorithm, costs = "links", trace, goal, report;
    std::vector<double> bytes; // empty: 1 MiB, and nothing for a barrier
    int links = 4;
    bool with_rings = false, with_pxn = false;
    sim::options run;
    tools::training_choice training;
    device_explain_options devices;
    bool with_training = false, with_devices = false;
};

// Returns the cost model of that name. "+links" behind a name: the links' latencies instead of NCCL's for a hop.
sim::cost_model costs_of(std::string name) {
    using sim::nccl_family, sim::protocol;
    if (name == "links") return {};
    if (name == "nccl-nvls-hopper") return sim::nccl_nvls_costs(90);
    if (name == "nccl-nvls-blackwell") return sim::nccl_nvls_costs(100);
    const std::string whole = name, plus = "+links";
    const bool by_links = name.size() > plus.size() && name.compare(name.size() - plus.size(), plus.npos, plus) == 0;
    if (by_links) name.resize(name.size() - plus.size());
    for (const auto family : {nccl_family::ring, nccl_family::tree})
        for (const auto p : {protocol::simple, protocol::ll128, protocol::ll})
            if (name == std::string(family == nccl_family::ring ? "nccl-ring-" : "nccl-tree-") + name_of(p)) {
                sim::cost_model m = nccl_costs(family, p);
                if (by_links) {
                    m.hop = {};
                    m.with_link_latency = true;
                }
                return m;
            }
    fail(errc::invalid_argument, -1, -1,
         "links, or nccl-ring-simple, nccl-tree-ll128, nccl-ring-ll+links, nccl-nvls-hopper, ...",
         "no cost model is called '%.100s'", whole.c_str());
}

topo::graph machine_without_lost(const request& c) {
    topo::graph g = tools::machine_of(c.machine);
    for (const std::string& l : c.lost) {
        const auto comma = l.find(',');
        if (comma == std::string::npos)
            fail(errc::invalid_argument, -1, -1, "name both its ends: --lost GPU0,GPU3", "a lost link '%.100s'",
                 l.c_str());
        g = sim::without_link(g, g.require(l.substr(0, comma)), g.require(l.substr(comma + 1)));
    }
    return g;
}

// Makes one order for each ring that the search finds, with its path. Inside a host no GPU comes twice, as algorithms
// expect of rings. Between hosts a ring passes the GPU beside its card a second time (PXN).
void take_rings(sim::options& run, const topo::graph& g, const std::vector<int>& sites) {
    topo::ring_options o;
    o.once = std::all_of(sites.begin(), sites.end(), [&](int s) { return g.at(s).host == g.at(sites[0]).host; });
    for (const topo::ring& r : topo::find_rings(g, sites, o).rings) {
        run.orders.emplace_back();
        run.ways.emplace_back();
        for (const int s : r.members)
            run.orders.back().push_back(static_cast<int>(std::find(sites.begin(), sites.end(), s) - sites.begin()));
        for (const topo::path& hop : r.hops) run.ways.back().push_back(hop.arcs);
    }
    if (run.orders.empty())
        fail(errc::invalid_argument, -1, -1, "leave --rings, or look at `collx_topo rings`",
             "no ring joins these %zu ranks", sites.size());
}

void write(const std::string& name, const std::string& text) {
    std::ofstream f(name, std::ios::binary);
    f << text;
    if (f.flush()) return;
    tools::with_file([&] {
        fail(errc::invalid_argument, -1, -1, "name a file that can be written", "cannot write '%.200s'", name.c_str());
    });
}

void print_links(const sim::fabric& f, const sim::result& r, int most) {
    const std::vector<double> use = tools::use_of(f, r);
    for (const std::size_t i : tools::by_use(use)) {
        if (--most < 0 || use[i] <= 0) return;
        const sim::link& l = f.links()[i];
        std::printf("    %-28s %-11s %8.4g GB/s, %5.1f %% busy\n", l.name.c_str(), topo::name_of(l.type),
                    l.bytes_per_s / 1e9, 100 * use[i]);
    }
}

// Where the ranks are: a graph, or rails given by a formula.
struct place {
    std::optional<topo::graph> g;
    std::vector<int> sites;
    std::vector<int> host_of; // by rank
    std::optional<sim::fabric> f;
};

// Reads HOSTSxRANKS. The rates are those of a DGX H100.
sim::rails rails_of(const request& c) {
    sim::rails m;
    char rest = 0;
    if (std::sscanf(c.rails.c_str(), "%7dx%7d%c", &m.hosts, &m.per_host, &rest) != 2 || m.hosts < 1 || m.per_host < 1 ||
        m.hosts > (1 << 20) / m.per_host)
        fail(errc::invalid_argument, -1, -1, "give hosts and ranks of each: --rails 2048x8, at most 2^20 ranks",
             "rails of '%.100s'", c.rails.c_str());
    if (!c.machine.machine.empty() || !c.machine.file.empty() || !c.ranks.empty() || !c.lost.empty() || c.with_rings ||
        c.with_pxn || c.machine.hosts != 1)
        fail(errc::unsupported, -1, -1, "name a machine with --machine instead",
             "rails are a formula: they take no --machine, --file, --ranks, --hosts, --lost, --rings and --pxn");
    if (c.machine.nccl_rates) m.host_bytes_per_s = 370.8e9;
    if (c.machine.nic > 0) m.card_bytes_per_s = c.machine.nic * 1e9;
    return m;
}

place place_of(const request& c) {
    place p;
    if (!c.rails.empty()) {
        const sim::rails m = rails_of(c);
        for (int r = 0; r < m.hosts * m.per_host; ++r) p.host_of.push_back(r / m.per_host);
        p.f = sim::fabric_of(m);
    } else {
        p.g = machine_without_lost(c);
        p.sites = tools::ranks_of(*p.g, c.ranks);
        for (const int s : p.sites) p.host_of.push_back(p.g->at(s).host);
    }
    if (p.host_of.size() < (c.with_training ? 1 : 2))
        fail(errc::invalid_argument, -1, -1, "name a machine with --machine, or more --ranks",
             "a collective of %zu ranks", p.host_of.size());
    return p;
}

// The sizes that are simulated. A barrier moves nothing.
std::vector<double> sizes_of(const request& c) {
    if (c.op == name_of(collective::barrier)) {
        if (!c.bytes.empty()) fail(errc::invalid_argument, -1, -1, "leave --bytes out", "a barrier moves no bytes");
        return {0};
    }
    for (const double bytes : c.bytes)
        if (!(bytes >= 0 && bytes < 0x1p63))
            fail(errc::invalid_argument, -1, -1, "give 0 or more, and less than 8EiB", "a buffer of %g bytes", bytes);
    return c.bytes.empty() ? std::vector<double>{1 << 20} : c.bytes;
}

// What is simulated.
struct job {
    place where;
    sim::recording schedule;
    sim::cost_model costs;
};
void prepare(request& c, job& j) {
    c.bytes = sizes_of(c);
    j.where = place_of(c);
    place& p = j.where;
    if (p.g) p.f = c.with_pxn ? sim::fabric::with_pxn(*p.g, p.sites) : sim::fabric(*p.g, p.sites);
    j.costs = costs_of(c.costs);
    if (c.with_training || c.with_devices) return;
    const node_map nodes(p.host_of);
    j.schedule = tools::recording_of(c.op, c.algorithm, static_cast<int>(p.host_of.size()), nodes);
    if (c.with_rings) take_rings(c.run, *p.g, p.sites);
    c.run.with_transfers = !c.trace.empty();
}

// Contains what a reader needs to reproduce the report.
std::string report_of(const request& c, const job& j, const std::vector<tools::prediction>& all) {
    const std::string machine = !c.rails.empty()            ? "rails " + c.rails
                                : !c.machine.file.empty()   ? c.machine.file
                                : c.machine.machine.empty() ? "this machine"
                                                            : c.machine.machine;
    const std::string algorithm = c.algorithm.empty() ? "the first that there is" : c.algorithm;
    return tools::sim_report(
        c.op + " on " + machine,
        {{"machine", machine + (c.machine.nccl_rates ? ", NCCL's rates" : "")},
         {"hosts", std::to_string(std::set<int>(j.where.host_of.begin(), j.where.host_of.end()).size())},
         {"ranks", std::to_string(j.schedule.ranks)},
         {"collective", c.op},
         {"algorithm", algorithm + (c.with_rings ? ", along the machine's rings" : "")},
         {"ways between hosts", c.with_pxn ? "by the neighbour on the receiver's rail" : "the best"},
         {"costs", c.costs},
         {"pieces", std::to_string(c.run.pieces)}},
        all, *j.where.f, j.where.g ? &*j.where.g : nullptr);
}

// The explained choice is that of devices whose kernels reach every peer.
void require_devices(const place& p) {
    const auto is_reached = [&](int s) {
        return p.g->at(s).type == topo::site_type::gpu &&
               topo::find_path(*p.g, p.sites[0], s).type < topo::path_class::net;
    };
    const bool all = p.g ? std::all_of(p.sites.begin(), p.sites.end(), is_reached) : p.host_of.back() == 0;
    if (!all)
        fail(errc::unsupported, -1, -1, "name GPUs of one host, or of one NVLink domain",
             "calls between devices that a network joins take two levels, which are not explained");
    if (p.host_of.size() > device::max_ranks)
        fail(errc::unsupported, -1, -1, "name fewer with --ranks", "a kernel has at most %d ranks, and these are %zu",
             device::max_ranks, p.host_of.size());
}

void run(request c) {
    job j;
    prepare(c, j);
    sim::fabric& f = *j.where.f;
    if (c.with_training) {
        const std::string text = tools::training_text(c.training, c.machine.machine, f, j.costs);
        return static_cast<void>(std::fputs(text.c_str(), stdout));
    }
    if (c.with_devices) {
        require_devices(j.where);
        for (const double bytes : c.bytes) {
            const explanation e = tools::explain_devices(f, c.op, static_cast<std::size_t>(bytes), c.devices);
            std::printf("%s\n", to_text(e).c_str());
        }
        return;
    }
    std::vector<tools::prediction> all;
    for (const double bytes : c.bytes) {
        c.run.bytes = bytes;
        const sim::result r = sim::simulate(j.schedule, f, j.costs, c.run);
        const double bus = sim::bus_bandwidth(j.schedule, bytes, r);
        if (all.empty()) std::printf("%14s %14s %16s\n", "bytes", "time us", "bus GB/s");
        std::printf("%14.0f %14.3f %16.3f\n", bytes, r.time_ns / 1e3, bus / 1e9);
        print_links(f, r, c.links);
        if (!c.trace.empty()) write(c.trace, sim::to_chrome_trace(j.schedule, r));
        all.push_back({bytes, bus, r});
    }
    if (!c.report.empty()) write(c.report, report_of(c, j, all));
    if (!c.goal.empty()) write(c.goal, sim::to_goal(j.schedule, c.bytes.back(), j.costs.reduce_ns_per_byte));
}

// Headings of --help, and what a subcommand takes.
constexpr const char *of_machine = "Machine", *of_call = "Call", *of_costs = "Costs", *of_schedule = "Schedule",
                     *of_output = "Output";

// A call on device memory has schedules and costs of its own.
constexpr const char* taken_by_devices[] = {of_machine, of_call};
constexpr const char* taken_by_training[] = {of_machine, of_costs};

void add_machine(CLI::App& app, request& c) {
    tools::add_machine_options(app, c.machine);
    app.add_option("--rails", c.rails, "2048x8: so many hosts of so many ranks on rails, for thousands of ranks");
    app.add_option("--ranks", c.ranks, "numbers of GPUs, or of CPUs where there is no GPU")->delimiter(',');
    app.add_option("--lost", c.lost, "a link that is lost: GPU0,GPU3");
}

void add_schedule(CLI::App& app, request& c) {
    app.add_option("-a,--algorithm", c.algorithm,
                   "ring, binomial, hierarchical, hierarchical-trees, ... (else the first that there is)");
    app.add_option("--pieces", c.run.pieces, "the buffer is passed on in so many pieces")
        ->check(CLI::Range(1, 1 << 16));
    app.add_option("--depth", c.run.depth, "messages that a channel holds, if the algorithm needs no more")
        ->check(CLI::Range(1, 1 << 16));
    app.add_flag("--rings", c.with_rings, "share the bytes among the rings that the machine has");
    app.add_flag("--by-switch", c.run.by_switch, "the switch sums and stores to all (NVLS); for -a multicast_two_shot");
    CLI::Option* slow = app.add_option("--slow", c.run.slow_rank, "a slow rank, --slowdown times slower")
                            ->check(CLI::NonNegativeNumber);
    CLI::Option* slowdown =
        app.add_option("--slowdown", c.run.slowdown, "how many times slower")->check(tools::finite());
    slow->needs(slowdown);
    slowdown->needs(slow);
    CLI::Option* dead = app.add_option("--dead", c.run.dead_rank, "a rank that does nothing from --dead-at on")
                            ->check(CLI::NonNegativeNumber);
    app.add_option("--dead-at", c.run.dead_at_ns, "ns")->check(tools::finite())->needs(dead);
}

void add_options(CLI::App& app, request& c) {
    app.option_defaults()->group(of_machine);
    add_machine(app, c);
    app.option_defaults()->group(of_call);
    app.add_option("-c,--collective", c.op, "all_reduce, broadcast, ...");
    app.add_option("-b,--bytes", c.bytes, "of the whole buffer; several: a sweep")
        ->delimiter(',')
        ->transform(CLI::AsSizeValue(false));
    app.option_defaults()->group(of_costs);
    app.add_option("--costs", c.costs, "links (their latencies only), nccl-ring-simple, nccl-tree-ll, ...");
    app.add_flag("--pxn", c.with_pxn, "between hosts by the neighbour whose card is on the receiver's rail");
    app.option_defaults()->group(of_schedule);
    add_schedule(app, c);
    app.option_defaults()->group(of_output);
    app.add_option("--links", c.links, "print so many of the busiest links")->check(CLI::Range(0, 1 << 16));
    app.add_option("--trace", c.trace, "write the messages of the last size for chrome://tracing");
    app.add_option("--report", c.report, "write an HTML page: curves over the sizes, and how busy each link is");
    app.add_option("--goal", c.goal, "write the schedule for LogGOPSim: one ring, one piece");
    app.option_defaults()->group("Options"); // of subcommands
}

// An option that a subcommand would ignore is wrong use.
template <class Groups>
void require_taken(const CLI::App& app, const CLI::App& sub, const Groups& taken) {
    if (!sub.parsed()) return;
    for (const CLI::Option* o : app.get_options())
        if (o->count() != 0 && std::find(std::begin(taken), std::end(taken), o->get_group()) == std::end(taken))
            throw CLI::ParseError(sub.get_name() + " takes no " + o->get_name() + ": leave it out",
                                  CLI::ExitCodes::ExcludesError);
}

// Returns the GB/s or us that a command line of this tool predicts.
double predicted(const tools::published_figure& row) {
    CLI::App app;
    request c;
    add_options(app, c);
    app.parse(row.command);
    job j;
    prepare(c, j);
    c.run.bytes = c.bytes[0];
    const sim::result r = sim::simulate(j.schedule, *j.where.f, j.costs, c.run);
    return row.is_time ? r.time_ns / 1e3 : sim::bus_bandwidth(j.schedule, c.run.bytes, r) / 1e9;
}

} // namespace

int main(int argc, char** argv) {
    tools::open_missing_standard_descriptors();
    CLI::App app{"Predicts a collective's time on a machine; runs and measures nothing"};
    request c;
    add_options(app, c);
    app.fallthrough();
    CLI::App* training = app.add_subcommand("training", "a training step: time, bubble, exposed communication, memory");
    tools::add_options(*training, c.training);
    CLI::App* devices = app.add_subcommand(
        "devices", "which algorithm a call on device memory takes there, and how long it and the others would take");
    devices->add_flag("--deterministic", c.devices.deterministic, "operands in rank order, as the policy");
    devices->add_option("--lanes", c.devices.lanes, "blocks of a kernel")->check(CLI::Range(1, 1024));
    devices->add_flag("!--no-switch", c.devices.switch_can, "element, operator or buffers that no switch can sum");
    CLI::App* published = app.add_subcommand("published", "figures that others have published, beside predictions");
    const auto ended = tools::exit_of_parsing(app, "collx_sim", argc, argv, [&] {
        require_taken(app, *training, taken_by_training);
        require_taken(app, *devices, taken_by_devices);
        require_taken(app, *published, std::vector<std::string>());
    });
    if (ended) return *ended;
    c.with_training = training->parsed();
    c.with_devices = devices->parsed();
    return tools::exit_code_of("collx_sim", [&] {
        if (!published->parsed()) return run(c);
        std::fputs(tools::published_text(predicted).c_str(), stdout);
    });
}
