// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The store of a process manager: a client of PMI-1 over the socket in PMI_FD (MPICH's mpiexec, srun --mpi=pmi2, Flux),
// or over a connection to PMI_PORT (mpiexec -pmi-port). One object per rank, used by one thread at a time, and not
// while another library of the program uses the same socket. Knows no job and no transport.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <collx/bootstrap/detail/pmi_text.hpp>
#include <collx/bootstrap/detail/socket_waits.hpp>
#include <collx/bootstrap/store.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/system_limits.hpp>

COLLX_BEGIN_NAMESPACE

// A Store with the order of PMI: other ranks see a value after a barrier of all ranks, and a key is set once. So all
// ranks set, all enter the barrier, all get. There are no sums. The destructor says goodbye to the manager, because
// process managers end a job when a rank leaves without.
class pmi_store {
public:
    static constexpr bool is_collective = true; // rendezvous() then uses the barrier instead of sums
    static constexpr std::size_t most_line_bytes = 4096;
    static constexpr std::int64_t answer_limit_ns = 10'000'000'000; // for answers that depend on no other rank
    static constexpr std::int64_t goodbye_limit_ns = 1'000'000'000;

    // `fd` stays the caller's (an MPI library may use it, too). Errors: environment when it is no socket · protocol ·
    // peer_failed when the manager closes the connection · timeout.
    [[gnu::cold]] pmi_store(int fd, int rank, int size, const deadline& until)
        : rank_(rank), size_(size), owner_(::getpid()) {
        int type = 0;
        socklen_t bytes = sizeof type;
        if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 || type != SOCK_STREAM)
            fail(errc::environment, rank, -1,
                 "the launcher leaves it to its direct children only; COLLX_BOOTSTRAP=single runs without it",
                 "PMI_FD=%d is not a socket of a process manager", fd);
        socket_ = descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
        if (!socket_.is_open())
            fail(errc::resource, rank, -1, detail::remedy_for_descriptor(errno), "cannot use PMI_FD: %s",
                 std::strerror(errno));
        begin(until);
    }
    // at: HOST:PORT as the manager gives it. A name is looked up, which takes as long as the system's resolver. Errors:
    // as above; environment when nothing answers.
    [[gnu::cold]] pmi_store(const kept_text& at, int id, const deadline& until)
        : rank_(id), size_(0), owner_(::getpid()) {
        connect(at, until);
        (void)ask(detail::joined({"cmd=initack pmiid=", id}), "initack", until);
        for (int* number : {&size_, &rank_, static_cast<int*>(nullptr)}) { // the third: whether to print messages
            const kept_text line = receive_line(until);
            if (detail::pmi_value(line, "cmd") != "set") fail_nonsense(line);
            if (number == nullptr) break;
            *number = static_cast<int>(
                detail::pmi_number(detail::pmi_value(line, number == &size_ ? "size" : "rank"), most_ranks));
            if (*number < 0) fail_nonsense(line);
        }
        if (rank_ >= size_) fail_nonsense(detail::joined({"rank=", rank_}));
        begin(until);
    }
    int rank() const { return rank_; }
    int size() const { return size_; }
    pmi_store(const pmi_store&) = delete;
    pmi_store& operator=(const pmi_store&) = delete;
    [[gnu::cold]] ~pmi_store() {
        if (owner_ != ::getpid() || !socket_.is_open()) return; // a child made by fork() is no rank
        try {
            (void)ask("cmd=finalize", "finalize_ack", deadline::in_ns(goodbye_limit_ns));
        } catch (const error&) { // the manager has gone, or an MPI library has said goodbye already
        }
    }

    // Errors: invalid_argument for a value longer than the manager takes (usually 1023 bytes; each byte that is not a
    // letter, a digit or one of ._- counts as three).
    void set(name_view key, name_view value) {
        detail::check_store_key(key);
        const kept_text word = detail::pmi_word(value);
        if (word.size() > most_value_bytes_)
            fail(errc::invalid_argument, rank_, -1, "split it, or use a tcp_store",
                 "a value of %zu bytes is too long for PMI, which takes %zu", word.size(), most_value_bytes_);
        check_rc(ask(detail::joined(
                         {"cmd=put kvsname=", space_, " key=", detail::pmi_key(key, most_key_bytes_), " value=", word}),
                     "put_result", deadline::in_ns(answer_limit_ns)));
    }
    kept_text get(name_view key, const deadline& until) {
        detail::check_store_key(key);
        kept_text word, value;
        for (detail::retry_pause pause(20'000'000); !look_up(detail::pmi_key(key, most_key_bytes_), word);)
            if (!pause.sleep(until)) detail::fail_store_timeout(key);
        if (!detail::read_pmi_word(word, value)) fail_nonsense(word);
        return value;
    }
    std::int64_t add(name_view, std::int64_t) {
        fail(errc::unsupported, rank_, -1, "use a tcp_store or a file_store", "PMI has no sums");
    }
    // A barrier of all ranks of the job; the name is used in error messages only.
    void barrier(name_view name, int ranks, const deadline& until) {
        if (ranks != size_)
            fail(errc::invalid_argument, rank_, -1, "", "a PMI barrier is of all %d ranks, not of %d", size_, ranks);
        waits_for_ = name;
        (void)ask("cmd=barrier_in", "barrier_out", until);
        waits_for_.clear();
    }

    int next_turn() { return turn_++; }

    // A value that the manager itself has set, not decoded; empty if there is none.
    kept_text of_manager(name_view key) {
        kept_text value;
        return look_up(kept_text(key), value) ? value : kept_text();
    }

private:
    void begin(const deadline& until) {
        check_rc(ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", until));
        const kept_text maxes = ask("cmd=get_maxes", "maxes", until);
        most_key_bytes_ = limit(maxes, "keylen_max", 40);
        most_value_bytes_ = limit(maxes, "vallen_max", 64);
        const kept_text name = ask("cmd=get_my_kvsname", "my_kvsname", until);
        space_ = pmi(name, "kvsname");
        if (space_.empty() || space_.size() > 1024) fail_nonsense(name);
    }
    [[gnu::cold]] void connect(const kept_text& at, const deadline& until) {
        const std::size_t colon = at.rfind(':');
        addrinfo hints{}, *found = nullptr;
        hints.ai_socktype = SOCK_STREAM;
        if (colon != kept_text::npos)
            (void)::getaddrinfo(at.substr(0, colon).c_str(), at.c_str() + colon + 1, &hints, &found);
        for (const addrinfo* a = found; a != nullptr && !socket_.is_open(); a = a->ai_next) {
            socket_ = descriptor(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            if (socket_.is_open() && !detail::connected_within(socket_.get(), a->ai_addr, a->ai_addrlen, until))
                socket_.close();
        }
        if (found != nullptr) ::freeaddrinfo(found);
        if (!socket_.is_open())
            fail(errc::environment, rank_, -1,
                 "was it started by this mpiexec, on a host that can reach it? COLLX_BOOTSTRAP=single runs without it",
                 "no process manager answers at PMI_PORT=%s", detail::printable(at.c_str()).text);
    }
    static kept_text pmi(const kept_text& line, const char* key) { return kept_text(detail::pmi_value(line, key)); }

    [[noreturn, gnu::cold]] void fail_nonsense(const kept_text& line) {
        socket_.close();
        fail(errc::protocol, rank_, -1, "does another library of this program use PMI at the same time?",
             "the process manager says '%s', which is no answer to the question", detail::printable(line.c_str()).text);
    }
    void check_rc(const kept_text& line) {
        if (detail::pmi_value(line, "rc") != "0") fail_nonsense(line);
    }
    // A limit that the manager names, without its zero byte: at least what collx needs, at most what our line takes.
    std::size_t limit(const kept_text& line, const char* key, std::int64_t least) {
        const std::int64_t n = detail::pmi_number(detail::pmi_value(line, key), INT32_MAX);
        if (n < least) fail_nonsense(line);
        return n < 2048 ? static_cast<std::size_t>(n) - 1 : 2047;
    }

    [[gnu::cold]] bool look_up(const kept_text& word, kept_text& value) {
        const kept_text line = ask(detail::joined({"cmd=get kvsname=", space_, " key=", word}), "get_result",
                                   deadline::in_ns(answer_limit_ns));
        if (detail::pmi_value(line, "rc") != "0") return false;
        bool is_there = false;
        value = detail::pmi_value(line, "value", &is_there);
        if (!is_there) fail_nonsense(line);
        return true;
    }

    // Sends one question; the answer is one line. After any other outcome the connection is unusable.
    [[gnu::cold]] kept_text ask(kept_text question, name_view answer, const deadline& until) {
        if (!socket_.is_open())
            fail(errc::peer_failed, rank_, -1, "see the first error", "the connection to the process manager is lost");
        question += '\n';
        const detail::came sent = detail::send_all(socket_.get(), question.data(), question.size(), until);
        if (sent == detail::came::lost) fail_lost();
        if (sent == detail::came::late) fail_late();
        kept_text line = receive_line(until);
        if (detail::pmi_value(line, "cmd") != answer) fail_nonsense(line);
        return line;
    }
    [[gnu::cold]] kept_text receive_line(const deadline& until) {
        for (std::size_t seen = 0;;) {
            const std::size_t end = in_.find('\n', seen);
            if (end != kept_text::npos) {
                kept_text line = in_.substr(0, end);
                in_.erase(0, end + 1);
                return line;
            }
            if (in_.size() > most_line_bytes) fail_nonsense(in_);
            seen = in_.size();
            char part[1024];
            const ssize_t n =
                detail::without_eintr([&] { return ::recv(socket_.get(), part, sizeof part, MSG_DONTWAIT); });
            if (n > 0) in_.append({part, static_cast<std::size_t>(n)});
            else if (n == 0 || errno != EAGAIN) fail_lost();
            else if (!detail::wait_for_event(socket_.get(), POLLIN, until)) fail_late();
        }
    }
    [[noreturn, gnu::cold]] void fail_lost() {
        socket_.close();
        fail(errc::peer_failed, rank_, -1,
             "see its output; a rank that runs several programs in turn has PMI only in the first",
             "the process manager has closed its connection");
    }
    [[noreturn, gnu::cold]] void fail_late() {
        socket_.close();
        if (waits_for_.empty())
            fail(errc::timeout, rank_, -1, "is mpiexec or srun stopped?", "the process manager does not answer");
        fail(errc::timeout, rank_, -1, "do all ranks make a communicator, and are they alive?",
             "not all %d ranks came to the PMI barrier '%s'", size_, waits_for_.c_str());
    }

    descriptor socket_;
    int rank_, size_;
    pid_t owner_;
    int turn_ = 0;
    std::size_t most_key_bytes_ = 0, most_value_bytes_ = 0;
    kept_text space_, in_, waits_for_;
};

COLLX_END_NAMESPACE
