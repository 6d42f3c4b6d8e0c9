// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collx-bench: needs=gloo
//
// The operations of `collx_perf --ops` through Gloo over TCP on loopback: the same buffers, patterns, checks, samples
// and CSV columns, from the same headers (tools/perf/). Starts its ranks itself. For each operation every algorithm
// that Gloo has for it is measured, a line each; some of them work in place only, on what stands in for the send
// buffer. Uses nothing of collx but its tools.

#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string_view>

#include "forked.hpp"
#include "perf/csv.hpp"
#include "perf/harness.hpp"
#include "perf/operation.hpp"
#include "perf/pattern.hpp"
#include "perf/sampling.hpp"
#include "support/format.hpp"

namespace {

using namespace collx::bench;
using namespace collx::tools;
using namespace collx::tools::perf;

constexpr int exit_usage = 2, exit_wrong = 3;

struct settings {
    std::vector<operation> operations;
    std::vector<std::size_t> sizes_bytes{std::size_t{1} << 20};
    std::string peer = "gloo", variant = "all";
    int ranks = 2;
    bool check = true, header = true;
    sampling_rules rules;
};

void read_option(settings& s, const std::string& word, const std::string& value) {
    if (word == "--ops") {
        for (const auto& name : split_list(value)) {
            const auto op = parse_operation(name);
            if (!op) throw std::invalid_argument("'" + name + "' is not an operation.");
            s.operations.push_back(*op);
        }
    } else if (word == "--sizes") {
        s.sizes_bytes.clear();
        for (const auto& size : split_list(value)) s.sizes_bytes.push_back(parse_size(size));
    } else if (word == "--ranks") s.ranks = std::stoi(value);
    else if (word == "--peer") s.peer = value;
    else if (word == "--variant") s.variant = value;
    else if (word == "--check") s.check = value != "0";
    else if (word == "--budget-ms") s.rules.budget_ms = std::stod(value);
    else if (word != "--place") throw std::invalid_argument("'" + word + "' is unknown.");
}

settings read_settings(int argc, char** argv) {
    settings s;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--no-header") s.header = false;
        else if (++i == argc) throw std::invalid_argument("'" + word + "' lacks its value.");
        else read_option(s, word, argv[i]);
    }
    if (s.operations.empty()) throw std::invalid_argument("Name operations with --ops, for example --ops allreduce.");
    if (s.ranks < 2 || s.ranks > shared_words::most) throw std::invalid_argument("There must be 2 to 64 ranks.");
    return s;
}

// One way to do one operation. `polls`: the pairs are asked in turn instead of by Gloo's thread, which only the
// algorithms of fixed buffers can do, and only where each rank has a core.
struct variant {
    const char* name;
    operation op;
    bool in_place, polls;
};
constexpr variant variants[] = {
    {"own", operation::all_reduce, false, false},
    {"bcube", operation::all_reduce, false, false},
    {"ring_chunked", operation::all_reduce, true, false},
    {"halving_doubling", operation::all_reduce, true, false},
    {"ring_chunked_polling", operation::all_reduce, true, true},
    {"halving_doubling_polling", operation::all_reduce, true, true},
    {"halving_doubling", operation::reduce_scatter, true, false},
    {"halving_doubling_polling", operation::reduce_scatter, true, true},
    {"own", operation::all_gather, false, false},
    {"ring", operation::all_gather, false, false},
    {"ring_polling", operation::all_gather, false, true},
    {"own", operation::broadcast, true, false},
    {"own", operation::all_to_all, false, false},
};

void add(void* to, const void* a, const void* b, std::size_t n) { ::gloo::sum<float>(to, a, b, n); }

// A context, its device and its store live and die together.
class context_of {
public:
    context_of(const settings& s, int rank, const std::string& directory, bool polls) {
        gloo::transport::tcp::attr at("127.0.0.1");
        device_ = gloo::transport::tcp::CreateDevice(at);
        gloo::rendezvous::FileStore store(directory);
        context_ = std::make_shared<gloo::rendezvous::Context>(rank, s.ranks);
        context_->connectFullMesh(store, device_);
        for (int r = 0; polls && r < s.ranks; ++r)
            if (r != rank) context_->getPair(r)->setSync(true, true);
    }
    [[nodiscard]] const std::shared_ptr<gloo::rendezvous::Context>& get() const { return context_; }

private:
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<gloo::rendezvous::Context> context_;
};

// One operation with one algorithm and one size, ready to be called.
class call {
public:
    call(const settings& s, const variant& v, const std::shared_ptr<gloo::rendezvous::Context>& in, float* send,
         float* recv, std::size_t whole, std::size_t count)
        : variant_(v), reduce_(in), gather_(in), broadcast_(in), to_all_(in) {
        const std::string_view name = v.name;
        const int n = static_cast<int>(whole);
        switch (v.op) {
            case operation::all_reduce:
                if (name.starts_with("ring"))
                    by_ = std::make_unique<gloo::AllreduceRingChunked<float>>(in, std::vector{send}, n);
                else if (name.starts_with("halving"))
                    by_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(in, std::vector{send}, n);
                else {
                    reduce_.setInput(send, whole);
                    reduce_.setOutput(recv, whole);
                    reduce_.setReduceFunction(add);
                    if (name == "bcube") reduce_.setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
                }
                break;
            case operation::reduce_scatter:
                by_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
                    in, std::vector{send}, n,
                    std::vector<int>(static_cast<std::size_t>(s.ranks), static_cast<int>(count)));
                break;
            case operation::all_gather:
                if (name.starts_with("ring"))
                    by_ = std::make_unique<gloo::AllgatherRing<float>>(in, std::vector<const float*>{send}, recv,
                                                                       static_cast<int>(count));
                else {
                    gather_.setInput(send, count);
                    gather_.setOutput(recv, whole);
                }
                break;
            case operation::broadcast: broadcast_.setOutput(send, whole); break;
            default: to_all_.setInput(send, whole); to_all_.setOutput(recv, whole);
        }
    }
    void operator()(int root) {
        if (by_) return by_->run();
        switch (variant_.op) {
            case operation::all_reduce: return gloo::allreduce(reduce_);
            case operation::all_gather: return gloo::allgather(gather_);
            case operation::broadcast: broadcast_.setRoot(root); return gloo::broadcast(broadcast_);
            default: return gloo::alltoall(to_all_);
        }
    }

private:
    const variant& variant_;
    std::unique_ptr<gloo::Algorithm> by_;
    gloo::AllreduceOptions reduce_;
    gloo::AllgatherOptions gather_;
    gloo::BroadcastOptions broadcast_;
    gloo::AlltoallOptions to_all_;
};

class rank_of_gloo {
public:
    rank_of_gloo(const settings& s, int rank, void* shared, int cores, std::string directory)
        : s_(s), rank_(rank), cores_(cores), directory_(std::move(directory)), meeting_(shared, rank, s.ranks, cores) {
        const std::size_t top = largest_rounded(s.operations, s.sizes_bytes, sizeof(float), s.ranks);
        send_ = pages<float>(top + 8192, false);
        recv_ = pages<float>(top + 8192, false);
    }
    int run() {
        for (const operation op : s_.operations)
            for (const variant& v : variants) {
                if (v.op != op || (s_.variant != "all" && s_.variant != v.name)) continue;
                if (v.polls && s_.ranks > cores_) continue;
                const std::string at = directory_ + "/" + v.name + "-" + short_name(op);
                if (rank_ == 0) std::filesystem::create_directory(at);
                meeting_.barrier();
                const context_of in(s_, rank_, at, v.polls);
                for (const std::size_t bytes : rounded_sizes(op, s_.sizes_bytes, sizeof(float), s_.ranks))
                    measure(v, in, bytes);
            }
        return meeting_.wrong().load() == 0 ? 0 : exit_wrong;
    }

private:
    void measure(const variant& v, const context_of& in, std::size_t bytes) {
        const std::size_t whole = bytes / sizeof(float), count = count_of(v.op, bytes, sizeof(float), s_.ranks);
        call once(s_, v, in.get(), send_, recv_, whole, count);
        if (s_.check) check(v, once, whole, count);
        std::memset(send_, 0, bytes);
        std::memset(recv_, 0, bytes);
        sampler samples(meeting_, s_.rules, [this] { meeting_.barrier(); });
        const timing t = samples.measure(
            [&](int calls) {
                for (int i = 0, root = 0; i < calls; ++i, root = root + 1 == s_.ranks ? 0 : root + 1) once(root);
            },
            1);
        if (rank_ == 0) {
            std::fputs(csv_text({v.op, bytes, s_.ranks, "tcp", s_.peer, v.name, v.in_place, t}).c_str(), stdout);
            std::fflush(stdout);
        }
    }
    void check(const variant& v, call& once, std::size_t whole, std::size_t count) {
        const int root = s_.ranks - 1;
        const pattern<float> data(pattern_kind::exact, reduction::sum, s_.ranks);
        float* const out = v.in_place ? send_ : recv_;
        std::memset(recv_, 0xA5, whole * sizeof(float));
        if (v.op == operation::broadcast && rank_ != root) std::memset(send_, 0xA5, whole * sizeof(float));
        else data.fill(send_, v.op == operation::all_gather ? count : whole, rank_);
        meeting_.barrier();
        once(root);
        std::uint64_t wrong = 0; // in place too, the block of a reduce-scatter is in front
        for (const auto& part : expected_parts(v.op, whole, rank_, s_.ranks, root, false))
            wrong += data.count_wrong(out, part);
        if (wrong != 0) {
            meeting_.wrong().fetch_add(wrong);
            std::fprintf(stderr, "peer_gloo: rank %d: WRONG RESULT: %s (%s) of %zu bytes: %llu elements\n", rank_,
                         long_name(v.op), v.name, whole * sizeof(float), static_cast<unsigned long long>(wrong));
        }
        meeting_.barrier();
    }

    const settings& s_;
    int rank_, cores_;
    std::string directory_;
    harness meeting_;
    float *send_ = nullptr, *recv_ = nullptr;
};

int run_rank(const settings& s, int rank, void* shared, int cores, const std::string& directory, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) return exit_usage;
    try {
        return rank_of_gloo(s, rank, shared, cores, directory).run();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "peer_gloo: rank %d: %s\n", rank, e.what());
        harness(shared, rank, s.ranks, cores).give_up();
        return 1;
    }
}

// Not bound to cores: Gloo has a thread of its own besides the one that calls.
int run_all(const settings& s) {
    void* const shared = pages(harness::bytes(s.ranks), true);
    const int cores = static_cast<int>(allowed_cores().size());
    std::string directory = (std::filesystem::temp_directory_path() / "collx-gloo-XXXXXX").string();
    if (::mkdtemp(directory.data()) == nullptr) throw std::runtime_error("There is no place for Gloo's store.");
    if (s.header) std::fputs(csv_header().c_str(), stdout);
    std::fflush(nullptr);
    std::vector<pid_t> ranks;
    const pid_t parent = ::getpid();
    for (int r = 0; r < s.ranks; ++r) {
        const pid_t p = ::fork();
        if (p == 0) ::_exit(run_rank(s, r, shared, cores, directory, parent));
        if (p > 0) ranks.push_back(p);
    }
    int code = static_cast<int>(ranks.size()) == s.ranks ? 0 : 1;
    for (const pid_t p : ranks) {
        int status = 0;
        if (code == 1) ::kill(p, SIGKILL); // Gloo's own waits take half a minute to end
        ::waitpid(p, &status, 0);
        if (status != 0 && code != 1) code = WIFEXITED(status) && WEXITSTATUS(status) == exit_wrong ? exit_wrong : 1;
    }
    std::filesystem::remove_all(directory);
    return code;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run_all(read_settings(argc, argv));
    } catch (const std::invalid_argument& e) {
        std::fprintf(stderr, "peer_gloo: %s\n", e.what());
        return exit_usage;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "peer_gloo: %s\n", e.what());
        return 1;
    }
}
