// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a piece of code in several processes, each on a core of its own as far as there are cores, and brings back the
// numbers they measured. Knows nothing of what they measure.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace collx::bench {

using numbers = std::vector<double>;

inline std::vector<int> allowed_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    ::sched_getaffinity(0, sizeof set, &set);
    std::vector<int> out;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
    return out;
}

/// Zeroed pages, all touched; `shared` ones are also seen by processes forked afterwards. Kept until the process ends.
template <class T = std::byte>
T* pages(std::size_t bytes, bool shared) {
    void* p =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        throw std::runtime_error("There is not enough memory for " + std::to_string(bytes) + " bytes.");
    return static_cast<T*>(std::memset(p, 0, bytes));
}

struct alignas(128) word {
    std::atomic<std::uint32_t> v;
};

/// What the processes of one test share. All zero at its start.
class shared_words {
public:
    static constexpr int most = 64; // processes
    word at[most][4];               // each written by one process only
    pid_t pid[most];
    void* address[most];

    /// Waits until word `which` of all of the first `count` processes has reached `value`; counts may wrap.
    void wait(int which, int count, std::uint32_t value, bool own_core) const {
        for (int k = 0; k < count; ++k)
            while (static_cast<std::int32_t>(at[k][which].v.load(std::memory_order_acquire) - value) < 0)
                rest(own_core);
    }
    void barrier(int me, int count, bool own_core) {
        const auto round = at[me][3].v.load(std::memory_order_relaxed) + 1;
        at[me][3].v.store(round, std::memory_order_release);
        wait(3, count, round, own_core);
    }
    static void rest(bool own_core) {
        if (!own_core) ::sched_yield();
#if defined(__x86_64__)
        else __builtin_ia32_pause();
#endif
    }
};

class forked {
    static constexpr std::size_t most_numbers = 4096;
    struct board {
        shared_words words;
        std::size_t filled[shared_words::most];
        double values[shared_words::most][most_numbers];
    };

public:
    forked() : cores_(allowed_cores()), board_(pages<board>(sizeof(board), true)) {}
    [[nodiscard]] int cores() const { return static_cast<int>(cores_.size()); }

    /// code(words, me) runs in `count` processes; what each returns, in their order. Errors: std::runtime_error when
    /// one of them failed or took two minutes.
    template <class Code>
    std::vector<numbers> run(int count, Code&& code) {
        if (count > shared_words::most) throw std::runtime_error("At most 64 processes are measured at once.");
        std::memset(static_cast<void*>(board_), 0, sizeof(board));
        std::fflush(nullptr);
        const pid_t parent = ::getpid();
        std::vector<pid_t> pids;
        for (int r = 0; r < count; ++r) {
            const pid_t p = ::fork();
            if (p == 0) child(r, parent, code);
            if (p > 0) pids.push_back(p);
        }
        bool good = static_cast<int>(pids.size()) == count;
        if (!good)
            for (pid_t p : pids) ::kill(p, SIGKILL);
        for (pid_t p : pids) {
            int status = 0;
            ::waitpid(p, &status, 0);
            good = good && status == 0;
        }
        if (!good) throw std::runtime_error("A process of the test could not be started, failed or took too long.");
        std::vector<numbers> out;
        for (int r = 0; r < count; ++r) out.emplace_back(board_->values[r], board_->values[r] + board_->filled[r]);
        return out;
    }

private:
    template <class Code>
    [[noreturn]] void child(int me, pid_t parent, Code& code) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::alarm(120); // a test that hangs ends
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cores_[static_cast<std::size_t>(me) % cores_.size()], &one);
        ::sched_setaffinity(0, sizeof one, &one);
        board_->words.pid[me] = ::getpid();
        try {
            const numbers v = code(board_->words, me);
            board_->filled[me] = std::min(v.size(), most_numbers);
            std::copy_n(v.begin(), board_->filled[me], board_->values[me]);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "limits: %s\n", e.what());
            ::_exit(1);
        }
        ::_exit(0);
    }

    std::vector<int> cores_;
    board* board_;
};

} // namespace collx::bench
