// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What this machine can do, without any library: a cache line from core to core, copying and adding in one process and
// in several at once, reading another process's memory through the kernel, and two sums written by hand
// (plain_all_reduce.hpp). CSV: name,bytes,procs,median,best,worst,unit. Rates are payload bytes of one process over
// time; `procs` processes do the same at once.
#include <sys/uio.h>

#include <cstdlib>
#include <exception>

#include "forked.hpp"
#include "perf/harness.hpp"
#include "plain_all_reduce.hpp"
#include "support/format.hpp"
#include "support/stats.hpp"

namespace {

using namespace collx::bench;
using collx::now_ns;

struct settings {
    std::string only;
    bool quick = false, probe = false;
    std::vector<int> procs{1, 2};
};

class limits {
public:
    explicit limits(const settings& s) : s_(s) {}

    void run() {
        std::puts("name,bytes,procs,median,best,worst,unit");
        line("line_pingpong_one_line", true);
        line("line_pingpong_two_lines", false);
        for (const auto& [name, kernel] : kernels)
            for (int n : s_.procs)
                for (std::size_t bytes : sizes(8 << 10)) memory(name, kernel, bytes, n);
        for (const auto& [name, write] : writers)
            for (std::size_t bytes : {512, 1536, 4 << 10, 16 << 10, 128 << 10, 512 << 10}) written(name, write, bytes);
        for (bool both : {false, true})
            for (std::size_t bytes : sizes(8)) attached(bytes, both);
        for (std::size_t bytes : sizes(64)) all_reduce_shared(bytes);
        for (std::size_t bytes : sizes(64)) all_reduce_staged(bytes);
    }

    // One line: ns of a cache line one way, and GB/s of each of two processes copying in the cache. Lower quartile and
    // its counterpart: others may be running.
    void probe() {
        const auto lines = line_times(true, 9, 500);
        const auto rates = memory_rates(copy, std::size_t{256} << 10, 2, 30, 1);
        std::printf("%.0f,%.1f\n", collx::tools::perf::line_time(lines), quantile(rates, 0.75));
    }

private:
    using kernel = void (*)(float*, const float*, const float*, std::size_t);
    struct named_kernel {
        const char* name;
        kernel run;
    };
    [[gnu::noinline]] static void copy(float* to, const float* a, const float*, std::size_t n) {
        std::memcpy(to, a, n * sizeof(float));
    }
    [[gnu::noinline]] static void read(float* to, const float* a, const float*, std::size_t n) {
        // Sixty-four sums beside each other, so that the loop waits for memory and not for an addition.
        float sums[64] = {};
        for (std::size_t i = 0; i + 64 <= n; i += 64)
            for (std::size_t k = 0; k < 64; ++k) sums[k] += a[i + k];
        std::memcpy(to, sums, sizeof sums);
    }
    static constexpr named_kernel kernels[] = {{"mem_memcpy", copy}, {"mem_add3", add_into}, {"mem_read", read}};

    // How memory is written whose lines another core has.
    using writer = void (*)(float*, const float*, std::size_t);
    struct named_writer {
        const char* name;
        writer write;
    };
    [[gnu::noinline]] static void by_loop(float* to, const float* from, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) to[i] = from[i] + 1; // a sum, which is no copy in disguise
    }
    [[gnu::noinline]] static void by_memcpy(float* to, const float* from, std::size_t n) {
        std::memcpy(to, from, n * sizeof(float));
    }
    [[gnu::noinline]] static void by_string_copy(float* to, const float* from, std::size_t n) {
#if defined(__x86_64__)
        n *= sizeof(float);
        asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
#else
        by_memcpy(to, from, n);
#endif
    }
    static constexpr named_writer writers[] = {
        {"write_loop", by_loop}, {"write_memcpy", by_memcpy}, {"write_string_copy", by_string_copy}};

    [[nodiscard]] std::vector<std::size_t> sizes(std::size_t first) const {
        static constexpr std::size_t all[] = {8,        64,        512,     4 << 10, 8 << 10,  16 << 10,
                                              64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
        std::vector<std::size_t> out;
        for (std::size_t bytes : all)
            if (bytes >= first && (!s_.quick || bytes <= (std::size_t{16} << 20))) out.push_back(bytes);
        return out;
    }
    [[nodiscard]] bool is_wanted(const std::string& name) const { return name.find(s_.only) != std::string::npos; }
    static double quantile(numbers v, double fraction) {
        std::sort(v.begin(), v.end());
        return collx::tools::percentile_of_sorted(v, fraction);
    }
    [[nodiscard]] int rounds(int usual) const { return s_.quick ? usual / 2 : usual; }

    static void print(const char* name, std::size_t bytes, int procs, numbers v, const char* unit) {
        std::sort(v.begin(), v.end());
        const bool more_is_better = std::strcmp(unit, "GB/s") == 0;
        std::printf("%s,%zu,%d,%.4g,%.4g,%.4g,%s\n", name, bytes, procs, collx::tools::median_of_sorted(v),
                    more_is_better ? v.back() : v.front(), more_is_better ? v.front() : v.back(), unit);
        std::fflush(stdout);
    }

    // ------------------------------------------------------------------ a line from core to core
    numbers line_times(bool same_line, int repetitions, int trips) {
        const bool own_core = forked_.cores() > 1;
        const auto all = forked_.run(2, [&](shared_words& w, int me) {
            std::atomic<std::uint32_t>& ping = w.at[0][0].v;
            // The word beside it, or a line of its own.
            auto& pong = same_line ? reinterpret_cast<std::atomic<std::uint32_t>*>(&w.at[0][0])[1] : w.at[1][0].v;
            numbers out;
            collx::tools::perf::line_bounce bounce{ping, pong};
            const auto rest = [&] {
                if (!own_core) shared_words::rest(false);
                return true;
            };
            for (int r = 0; r < repetitions; ++r) {
                w.barrier(me, 2, own_core);
                const auto start = now_ns();
                bounce.run(me == 0, trips, rest);
                out.push_back(static_cast<double>(now_ns() - start) / trips / 2);
            }
            return out;
        });
        return {all[0].begin() + 1, all[0].end()};
    }
    void line(const char* name, bool same_line) {
        if (is_wanted(name)) print(name, 4, 2, line_times(same_line, 12, s_.quick ? 5000 : 20'000), "ns one way");
    }

    // ------------------------------------------------------------------ memory
    numbers memory_rates(kernel run, std::size_t bytes, int procs, int repetitions, std::size_t inner) {
        const bool own_core = procs <= forked_.cores();
        const auto all = forked_.run(procs, [&](shared_words& w, int me) {
            float *to = pages<float>(bytes, false), *a = pages<float>(bytes, false), *b = pages<float>(bytes, false);
            const std::size_t n = bytes / sizeof(float);
            numbers out;
            run(to, a, b, n);
            for (int r = 0; r < repetitions; ++r) {
                w.barrier(me, procs, own_core);
                const auto start = now_ns();
                for (std::size_t k = 0; k < inner; ++k) run(to, a, b, n);
                out.push_back(static_cast<double>(bytes * inner) / static_cast<double>(now_ns() - start));
            }
            return out;
        });
        numbers out;
        for (const auto& v : all) out.insert(out.end(), v.begin(), v.end());
        return out;
    }
    void memory(const char* name, kernel run, std::size_t bytes, int procs) {
        if (!is_wanted(name)) return;
        const std::size_t inner = std::max<std::size_t>(1, (std::size_t{s_.quick ? 4u : 32u} << 20) / bytes);
        print(name, bytes, procs, memory_rates(run, bytes, procs, rounds(11), inner), "GB/s");
    }

    // ------------------------------------------------------------------ memory that another core reads
    // Two processes write a piece of a ring each, at once, and then read the other's piece. The time until what a
    // process wrote is visible, and only that.
    void written(const char* name, writer write, std::size_t bytes) {
        if (!is_wanted(name)) return;
        const std::size_t ring = std::size_t{2} << 20, n = bytes / sizeof(float);
        auto* rings = pages<float>(2 * ring, true);
        const bool own_core = forked_.cores() > 1;
        const auto all = forked_.run(2, [&](shared_words& w, int me) {
            float *own = pages<float>(bytes, false), *to = pages<float>(bytes, false);
            numbers out;
            const std::size_t places = ring / bytes, calls = 2 * places + static_cast<std::size_t>(rounds(400));
            for (std::size_t call = 0; call < calls; ++call) {
                const std::size_t at = call % places * n,
                                  theirs = static_cast<std::size_t>(1 - me) * ring / sizeof(float);
                w.barrier(me, 2, own_core);
                const auto start = now_ns();
                write(rings + static_cast<std::size_t>(me) * ring / sizeof(float) + at, own, n);
                std::atomic_thread_fence(std::memory_order_seq_cst);
                if (call >= 2 * places) out.push_back(static_cast<double>(now_ns() - start) / 1e3);
                w.barrier(me, 2, own_core);
                std::memcpy(to, rings + theirs + at, bytes);
            }
            return out;
        });
        ::munmap(rings, 2 * ring);
        print(name, bytes, 2, all[0], "us");
    }

    // ------------------------------------------------------------------ another process's memory
    void attached(std::size_t bytes, bool both) {
        const char* name = both ? "cma_read_both_ways" : "cma_read";
        if (!is_wanted(name) || is_refused_) return;
        const auto inner = std::clamp<std::size_t>((std::size_t{s_.quick ? 2u : 8u} << 20) / bytes, 1, 1000);
        const bool own_core = forked_.cores() > 1;
        const auto all = forked_.run(2, [&](shared_words& w, int me) {
            w.address[me] = pages(bytes, false);
            std::byte* to = pages(bytes, false);
            // Where the kernel lets only ancestors attach, ask it to make an exception.
            ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
            numbers out;
            for (int r = 0; r <= rounds(12); ++r) {
                w.barrier(me, 2, own_core);
                if (me == 0 && !both) continue;
                const auto start = now_ns();
                for (std::size_t k = 0; k < inner; ++k) {
                    const iovec mine{to, bytes}, theirs{w.address[1 - me], bytes};
                    if (::process_vm_readv(w.pid[1 - me], &mine, 1, &theirs, 1, 0) != static_cast<ssize_t>(bytes))
                        out.assign(1, -1);
                }
                const double ns = static_cast<double>(now_ns() - start) / static_cast<double>(inner);
                if (!out.empty() && out[0] < 0) break;
                if (r > 0) out.push_back(bytes <= 8 ? ns : static_cast<double>(bytes) / ns);
            }
            w.at[me][3].v.store(1u << 20, std::memory_order_release); // no process waits for one that left
            w.at[me][2].v.store(1, std::memory_order_release);        // nor leaves before its memory is read
            w.wait(2, 2, 1, own_core);
            return out;
        });
        is_refused_ = all[1].empty() || all[1][0] < 0;
        if (is_refused_) std::fprintf(stderr, "limits: %s: this kernel refuses process_vm_readv\n", name);
        else print(name, bytes, 2, all[1], bytes <= 8 ? "ns" : "GB/s");
    }

    // ------------------------------------------------------------------ sums by hand
    template <class Call>
    numbers call_times(shared_words& w, int me, std::size_t bytes, Call& call, const float* result) {
        const bool own_core = forked_.cores() > 1;
        const std::size_t n = bytes / sizeof(float);
        call();
        for (std::size_t i = 0; i < n; ++i)
            if (result[i] != 3) throw std::runtime_error("a sum written by hand is wrong.");
        const auto inner = std::clamp<std::size_t>((std::size_t{4} << 20) / bytes, 1, s_.quick ? 200 : 1000);
        numbers out;
        for (int r = 0; r <= rounds(21); ++r) {
            w.barrier(me, 2, own_core);
            const auto start = now_ns();
            for (std::size_t k = 0; k < inner; ++k) call();
            if (r > 0) out.push_back(static_cast<double>(now_ns() - start) / static_cast<double>(inner) / 1e3);
        }
        return out;
    }
    static float* input(float* at, std::size_t n, int me) {
        std::fill_n(at, n, static_cast<float>(me + 1));
        return at;
    }
    void all_reduce_shared(std::size_t bytes) {
        const char* name = "plain_allreduce_shared";
        if (!is_wanted(name)) return;
        const std::size_t n = bytes / sizeof(float), room = std::max<std::size_t>(n, 1024);
        auto* memory = pages<float>(4 * room * sizeof(float), true);
        const auto all = forked_.run(2, [&](shared_words& w, int me) {
            shared_all_reduce call{.in = {memory, memory + room},
                                   .out = {memory + 2 * room, memory + 3 * room},
                                   .n = n,
                                   .words = w,
                                   .me = me,
                                   .own_core = forked_.cores() > 1};
            input(call.in[me], n, me);
            return call_times(w, me, bytes, call, call.out[me]);
        });
        ::munmap(memory, 4 * room * sizeof(float));
        print(name, bytes, 2, all[0], "us");
    }
    void all_reduce_staged(std::size_t bytes) {
        const char* name = "plain_allreduce_staged";
        if (!is_wanted(name)) return;
        auto* rings = pages<float>(staged_all_reduce::shared_bytes, true);
        const auto all = forked_.run(2, [&](shared_words& w, int me) {
            const std::size_t n = bytes / sizeof(float);
            staged_all_reduce call{.in = input(pages<float>(bytes, false), n, me),
                                   .out = pages<float>(bytes, false),
                                   .n = n,
                                   .rings = rings,
                                   .words = w,
                                   .me = me,
                                   .own_core = forked_.cores() > 1};
            return call_times(w, me, bytes, call, call.out);
        });
        ::munmap(rings, staged_all_reduce::shared_bytes);
        print(name, bytes, 2, all[0], "us");
    }

    settings s_;
    forked forked_;
    bool is_refused_ = false;
};

settings read_settings(int argc, char** argv) {
    settings s;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--quick") s.quick = true;
        else if (word == "--probe") s.probe = true;
        else if (word == "--only" && i + 1 < argc) s.only = argv[++i];
        else if (word == "--procs" && i + 1 < argc) {
            s.procs.clear();
            for (const auto& n : collx::tools::split_list(argv[++i])) s.procs.push_back(std::stoi(n));
        } else throw std::invalid_argument("usage: limits [--only PART_OF_NAME] [--procs 1,2] [--quick] | --probe");
    }
    return s;
}

} // namespace

int main(int argc, char** argv) {
    try {
        const settings s = read_settings(argc, argv);
        limits l(s);
        if (s.probe) l.probe();
        else l.run();
        return 0;
    } catch (const std::invalid_argument& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "limits: %s\n", e.what());
        return 1;
    }
}
