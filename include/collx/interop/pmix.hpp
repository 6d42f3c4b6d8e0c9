// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Startup under PMIx (Open MPI's mpirun, PRRTE's prterun, srun --mpi=pmix) through its client library. A program that
// includes this header anywhere and links collx::pmix exchanges addresses through PMIx; without it ranks of one host
// still connect, see launchers.hpp. Compiled against the library's own header: its structures differ between versions.
// collx-header: needs=pmix
#pragma once

#include <pmix.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include <collx/bootstrap/description.hpp>
#include <collx/bootstrap/rendezvous.hpp>
#include <collx/bootstrap/store.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/pointers.hpp>
#include <collx/core/provided.hpp>
#include <collx/net.hpp>

COLLX_BEGIN_NAMESPACE

// This process as PMIx knows it, and a Store with PMIx's ordering: the other ranks see what a rank sets after a
// barrier of all ranks. add() is unsupported. PMIx counts its users, so an MPI library may start and end it
// independently. Errors: environment when no PMIx server answers · protocol · timeout.
class pmix_store {
public:
    // Values that are set become visible only after a barrier.
    static constexpr bool is_collective = true;

    pmix_store() : owner_(::getpid()) {
        check(PMIx_Init(&me_, nullptr, 0), "PMIx_Init");
        rank = static_cast<int>(me_.rank);
        try {
            size = number(PMIX_JOB_SIZE, all_ranks());
            local_size = number(PMIX_LOCAL_SIZE, all_ranks());
            local_rank = number(PMIX_LOCAL_RANK, me_);
            if (size < 1 || rank < 0 || rank >= size || local_size < 1 || local_size > size || local_rank < 0 ||
                local_rank >= local_size)
                fail(errc::protocol, rank, -1, "", "PMIx says rank %d of %d, %d of %d on this host", rank, size,
                     local_rank, local_size);
        } catch (...) {
            (void)PMIx_Finalize(nullptr, 0);
            throw;
        }
    }
    pmix_store(const pmix_store&) = delete;
    pmix_store& operator=(const pmix_store&) = delete;
    ~pmix_store() {
        if (owner_ == ::getpid()) (void)PMIx_Finalize(nullptr, 0); // a child of fork() is no rank
    }

    int rank = 0, size = 1, local_rank = 0, local_size = 1; // of the job, and among its ranks on this host

    // As Store; the other ranks see it after a barrier.
    void set(name_view key, name_view value) {
        detail::check_store_key(key);
        detail::check_store_value(value);
        pmix_value_t v;
        std::memset(&v, 0, sizeof v);
        v.type = PMIX_BYTE_OBJECT;
        v.data.bo.bytes = const_cast<char*>(value.data()); // only read
        v.data.bo.size = value.size();
        check(PMIx_Put(PMIX_GLOBAL, name(key).c_str(), &v), "PMIx_Put");
        check(PMIx_Commit(), "PMIx_Commit");
    }
    // PMIx keeps values by the rank that has set them, so a key is looked up at all ranks, first at the rank whose
    // number it ends with. (A lookup without a rank finds nothing under Open MPI 4.1.)
    kept_text get(name_view key, const deadline& until) {
        detail::check_store_key(key);
        std::size_t digits = 0;
        while (digits < key.size() && digits < 9 && key[key.size() - 1 - digits] >= '0' &&
               key[key.size() - 1 - digits] <= '9')
            ++digits;
        int likely = 0;
        for (const char c : key.substr(key.size() - digits)) likely = likely * 10 + (c - '0');
        for (detail::retry_pause pause(20'000'000);;) {
            for (int r = -1; r < size; ++r) {
                kept_text value;
                const int asked = r >= 0 ? r : likely;
                if (asked < size && look_up(asked, key, value)) return value;
            }
            if (!pause.sleep(until)) detail::fail_store_timeout(key);
        }
    }
    // Errors: unsupported, always.
    std::int64_t add(name_view, std::int64_t) {
        fail(errc::unsupported, rank, -1, "use a tcp_store or a file_store", "PMIx has no sums");
    }
    // A barrier of all ranks of the job; its name is used in messages only.
    void barrier(name_view what, int ranks, const deadline& until) {
        if (ranks != size)
            fail(errc::invalid_argument, rank, -1, "", "a PMIx barrier is of all %d ranks, not of %d", size, ranks);
        // Does not wait inside PMIx, because not every server knows its time limit.
        pmix_info_t options[1];
        std::memset(options, 0, sizeof options);
        std::strcpy(options[0].key, PMIX_COLLECT_DATA);
        options[0].value.type = PMIX_BOOL;
        options[0].value.data.flag = true;
        const auto answer = make_counted<fence_answer>();
        auto* held = new counted_ptr<fence_answer>(answer); // PMIx's share: its answer may come after this call
        const pmix_proc_t all = all_ranks();
        const pmix_status_t started = PMIx_Fence_nb(&all, 1, options, 1, &take_answer, held);
        if (started != PMIX_SUCCESS) delete held;
        if (started == PMIX_OPERATION_SUCCEEDED) return; // done already; no answer will come
        check(started, "PMIx_Fence_nb");
        for (detail::retry_pause pause(1'000'000); !answer->is_there.load(std::memory_order_acquire);)
            if (!pause.sleep(until))
                fail(errc::timeout, rank, -1, "do all ranks make a communicator, and are they alive?",
                     "not all %d ranks came to the PMIx barrier '%.*s'", size, static_cast<int>(what.size()),
                     what.data());
        check(answer->status, "PMIx_Fence");
    }
    // A number for each use of the store, from 0 on.
    int next_turn() { return turn_++; }

private:
    struct fence_answer {
        pmix_status_t status = PMIX_SUCCESS; // written by: PMIx's thread, before is_there
        std::atomic<bool> is_there{false};   // written by: PMIx's thread (release); read by: barrier() (acquire)
    };
    static void take_answer(pmix_status_t status, void* held) {
        auto* answer = static_cast<counted_ptr<fence_answer>*>(held);
        (*answer)->status = status;
        (*answer)->is_there.store(true, std::memory_order_release);
        delete answer;
    }

    pmix_proc_t proc(pmix_rank_t r) const {
        pmix_proc_t p;
        std::memset(&p, 0, sizeof p);
        std::memcpy(p.nspace, me_.nspace, sizeof p.nspace);
        p.rank = r;
        return p;
    }
    pmix_proc_t all_ranks() const { return proc(PMIX_RANK_WILDCARD); }
    // Keys have a prefix of collx; PMIx separates those of different ranks.
    static kept_text name(name_view key) { return "collx." + kept_text(key); }

    void check(pmix_status_t status, const char* call) const {
        if (status == PMIX_SUCCESS) return;
        const bool is_nobody = status == PMIX_ERR_UNREACH || status == PMIX_ERR_INVALID_NAMESPACE;
        fail(status == PMIX_ERR_TIMEOUT ? errc::timeout : errc::environment, rank, -1,
             is_nobody ? "start the program with mpirun, prterun or srun --mpi=pmix, or set COLLX_BOOTSTRAP"
                       : "see the launcher's messages",
             "%s failed: %s", call, PMIx_Error_string(status));
    }

    int number(const char* key, const pmix_proc_t& of) const {
        pmix_value_t* v = nullptr;
        check(PMIx_Get(&of, key, nullptr, 0, &v), key);
        const std::uint32_t n = v->type == PMIX_UINT32   ? v->data.uint32
                                : v->type == PMIX_UINT16 ? v->data.uint16
                                                         : UINT32_MAX;
        PMIX_VALUE_RELEASE(v);
        return n < (1u << 20) ? static_cast<int>(n) : -1;
    }

    bool look_up(int r, name_view key, kept_text& value) const {
        pmix_info_t options[1];
        std::memset(options, 0, sizeof options);
        std::strcpy(options[0].key, PMIX_IMMEDIATE); // do not wait for a rank that has not set it
        options[0].value.type = PMIX_BOOL;
        options[0].value.data.flag = true;
        pmix_value_t* v = nullptr;
        const pmix_proc_t of = proc(static_cast<pmix_rank_t>(r));
        if (PMIx_Get(&of, name(key).c_str(), options, 1, &v) != PMIX_SUCCESS || v == nullptr) return false;
        const bool is_ours = v->type == PMIX_BYTE_OBJECT && v->data.bo.size <= most_value_bytes;
        if (is_ours) value = {v->data.bo.bytes, v->data.bo.size};
        PMIX_VALUE_RELEASE(v);
        return is_ours;
    }

    pmix_proc_t me_{};
    pid_t owner_;
    int turn_ = 0;
};

namespace detail {

// Lives until the program ends: PMIx regards a rank that exits without PMIx_Finalize as failed.
inline pmix_store& process_pmix() {
    static pmix_store store;
    return store;
}
inline void describe_by_pmix(job_description& d) {
    const pmix_store& s = process_pmix();
    d.rank = s.rank;
    d.size = s.size;
    d.local_rank = s.local_rank;
    d.local_size = s.local_size;
}
inline constexpr pmix_component pmix_of_library{
    describe_by_pmix, [](name_view key, name_view value) { process_pmix().set(key, value); },
    [](name_view key, const deadline& until) { return process_pmix().get(key, until); },
    [](name_view name, int ranks, const deadline& until) { process_pmix().barrier(name, ranks, until); },
    [] { return process_pmix().next_turn(); }};
inline const bool has_pmix = provided(pmix, &pmix_of_library);

} // namespace detail

COLLX_END_NAMESPACE
