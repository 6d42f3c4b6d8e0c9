// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The store of processes that share only a network: a connection to the tcp_server that one of them runs. One object
// per rank, used by one thread at a time.
#pragma once

#include <unistd.h>

#include <collx/bootstrap/detail/socket_waits.hpp>
#include <collx/bootstrap/detail/tcp_frame.hpp>
#include <collx/bootstrap/names.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

class tcp_store final : public store_alarm {
public:
    static constexpr std::int64_t answer_limit_ns = 10'000'000'000; // for a reply that needs no waiting
    static constexpr std::int64_t late_limit_ns = 1'000'000'000; // the same once the deadline of the start has passed
    static constexpr std::int64_t gone_after_ns = 5'000'000'000; // silent for so long after a refusal: it has ended

    // Connects, and tries again until the deadline, because the server may start later. host: an address or a name.
    // rank: for the server's messages. Errors: timeout · security when the server has another key, or only one side has
    // a key. If such refusals go on, the other ranks get the same error from get().
    [[gnu::cold]] tcp_store(const kept_text& host, int port, const deadline& until, int rank = -1,
                            const job_key& key = {})
        : owner_(::getpid()), address_(detail::numeric_address(look_up(host, until), port)), rank_(rank), key_(key) {
        if (address_.is_any_host())
            fail(errc::environment, rank, -1, "give an address or a name of rank 0's host",
                 "no other host reaches a store at %.80s", host.c_str());
        // Another job's server may be about to leave this port.
        const deadline patience = deadline::in_ns(2'000'000'000);
        deadline gone_after; // never, unless the server refuses
        detail::tcp_status last_refused_for = detail::tcp_status::ok;
        for (detail::retry_pause pause(20'000'000);;) {
            refused_for_ = detail::tcp_status::ok;
            if (connect(until)) return;
            // A server that was only slow still reads the hello, and must not take its end for this rank's death.
            if (!until.passed()) say_bye();
            socket_.close();
            const bool goes_on = pause.sleep(until), is_refused = refused_for_ != detail::tcp_status::ok;
            if (is_refused) {
                last_refused_for = refused_for_;
                gone_after = deadline::in_ns(gone_after_ns);
            }
            refused_for_ = last_refused_for;
            // The server ended after a refusal; its rank has reported the refusal.
            if (is_refused ? !goes_on || patience.passed() : gone_after.passed()) fail_refused();
            if (!goes_on)
                fail(errc::timeout, rank_, 0, "is the rank that runs the store started, and is this its address?",
                     "no store answers at %.80s port %d", host.c_str(), port);
        }
    }

    tcp_store(tcp_store&&) = default;
    // Sends bye, so that the server does not take this rank for dead.
    [[gnu::cold]] ~tcp_store() {
        if (owner_ == ::getpid()) say_bye(); // a child made by fork() is no rank
    }

    void set(name_view key, name_view value) {
        detail::check_store_value(value);
        (void)ask(detail::tcp_word::set, key, value, 0, soon());
    }
    kept_text get(name_view key, const deadline& until) { return wait(detail::tcp_word::get, key, "", until).value; }
    std::int64_t add(name_view key, std::int64_t delta) {
        return ask(detail::tcp_word::add, key, "", delta, soon()).number;
    }
    void barrier(name_view name, int ranks, const deadline& until) {
        detail::barrier_by_counting(*this, name, ranks, until);
    }
    // Waits until the server closes the connection, or until the deadline.
    void wait_for_end(const deadline& until) {
        stop_listening();
        if (socket_.is_open()) (void)detail::wait_for_event(socket_.get(), POLLIN, until);
    }

    // ------------------------------------------------------------------ store_alarm
    void appear(int rank, int ranks, const deadline& until) override { // the hello has told the server this rank
        watching_rank_ = rank;
        watching_ranks_ = ranks;
        start_until_ = until;
        is_starting_ = true;
    }
    void watch(std::int64_t, name_view bell) override {
        const std::int64_t both = std::int64_t{watching_ranks_} << 32 | watching_rank_;
        (void)ask(detail::tcp_word::watch, bell, "", both, soon());
    }
    void leave() override {
        stop_listening();
        say_bye();
        is_starting_ = false;
    }
    kept_text claim(name_view key, name_view value, bool& is_mine) override {
        answer a = ask(detail::tcp_word::claim, key, value, 0, soon());
        is_mine = a.number != 0;
        return static_cast<kept_text&&>(a.value);
    }
    bool get_or_bell(name_view key, name_view bell, const deadline& until, kept_text& value) override {
        return wait_for_value(detail::tcp_word::get, key, bell, until, value);
    }
    bool arrive(name_view first_bell, name_view bell, const deadline& until, kept_text& value) override {
        return wait_for_value(detail::tcp_word::arrive, first_bell, bell, until, value);
    }
    // The first call sends the question; later ones only look for the reply.
    [[gnu::cold]] bool is_rung(name_view bell, kept_text& value) override {
        if (has_ended_) return false;
        if (!is_listening_) {
            if (!socket_.is_open() || say(detail::tcp_word::get, bell, "", INT64_MAX / 4, soon()) != came::whole)
                fail_lost();
            is_listening_ = true;
        }
        if (!detail::wait_for_event(socket_.get(), POLLIN, deadline{1})) return false;
        is_listening_ = false;
        answer a = hear(soon());
        if (a.status == detail::tcp_status::ended) return false;
        value = require_ok(static_cast<answer&&>(a), bell).value;
        return true;
    }
    bool has_ended() const override { return has_ended_; }

private:
    // The request has no reply.
    void say_bye() {
        detail::tcp_request q;
        q.word = detail::tcp_word::bye;
        if (socket_.is_open()) (void)::send(socket_.get(), &q, sizeof q, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    struct answer {
        std::int64_t number = 0;
        kept_text value;
        detail::tcp_status status = detail::tcp_status::ok;
    };
    // During a start a reply must come at the latest shortly after the start's own deadline.
    deadline soon() const {
        std::int64_t left_ns = start_until_.left_ns();
        left_ns = left_ns > answer_limit_ns ? answer_limit_ns : left_ns > 0 ? left_ns : 0;
        const bool is_short = is_starting_ && left_ns + late_limit_ns < answer_limit_ns;
        return deadline::in_ns(is_short ? left_ns + late_limit_ns : answer_limit_ns);
    }
    [[gnu::cold]] answer wait(detail::tcp_word word, name_view key, name_view bell, const deadline& until) {
        const std::int64_t left_ns = until.left_ns();
        // The server watches the deadline; this limit detects that there is no server any more.
        const std::int64_t limit_ns = bell.empty() ? answer_limit_ns : late_limit_ns;
        const deadline for_answer =
            until.at_ns < INT64_MAX - limit_ns ? deadline{(left_ns > 0 ? until.at_ns : now_ns()) + limit_ns} : until;
        return ask(word, key, bell, left_ns, for_answer);
    }
    // False: the bell rang.
    bool wait_for_value(detail::tcp_word word, name_view key, name_view bell, const deadline& until, kept_text& value) {
        answer a = wait(word, key, bell, until);
        value = static_cast<kept_text&&>(a.value);
        return a.status != detail::tcp_status::rung;
    }
    // Withdraws the question for the bell. A reply that gets lost here comes again with the next question.
    [[gnu::cold]] void stop_listening() {
        if (!is_listening_) return;
        is_listening_ = false;
        try { // any request ends the question: the first reply answers the question, the second the request
            if (say(detail::tcp_word::get, "collx/none", "", 0, soon()) == came::whole) {
                (void)hear(soon());
                (void)hear(soon());
            }
        } catch (const error&) { // the server has ended: the next request fails
        }
    }
    using came = detail::came;

    [[gnu::cold]] bool connect(const deadline& until) {
        socket_ = detail::tcp_socket(address_);
        if (!detail::connected_within(socket_.get(), address_.get(), address_.bytes, until) || is_own_echo()) {
            socket_.close(); // there is no server to say bye to
            return false;
        }
        detail::send_at_once(socket_.get());
        // A process that listens there must answer as a store does, and soon: it may be none.
        deadline until_answer = deadline::in_ns(2'000'000'000);
        if (until.at_ns < until_answer.at_ns) until_answer = until;
        return key_ ? greet_by_key(until_answer) : greet(until_answer);
    }
    [[gnu::cold]] bool greet(const deadline& until) {
        detail::tcp_request hello;
        hello.number = rank_;
        return send_all(&hello, sizeof hello, until) == came::whole && is_answered(detail::tcp_status::ok, until);
    }
    [[gnu::cold]] bool greet_by_key(const deadline& until) {
        detail::tcp_keyed_hello hello;
        hello.head.number = rank_;
        detail::draw_random(hello.nonce, sizeof hello.nonce);
        detail::auth_answer a;
        if (send_all(&hello, sizeof hello, until) != came::whole || !is_answered(detail::tcp_status::answer, until) ||
            receive_all(&a, sizeof a, until) != came::whole)
            return false;
        if (!key_.is_right(hello, a)) {
            const detail::auth_proof none; // so that the server knows, too
            (void)send_all(&none, sizeof none, until);
            refused_for_ = detail::tcp_status::wrong_key;
            return false;
        }
        const detail::auth_proof p = key_.prove(hello, a);
        return send_all(&p, sizeof p, until) == came::whole && is_answered(detail::tcp_status::ok, until);
    }
    bool is_answered(detail::tcp_status wanted, const deadline& until) {
        detail::tcp_reply r;
        if (receive_all(&r, sizeof r, until) != came::whole || !r.is_sound()) return false;
        if (r.status >= detail::tcp_status::has_key) refused_for_ = r.status;
        return r.status == wanted;
    }
    static constexpr const char* same_key_remedy =
        "give all ranks the same COLLX_KEY_FD, COLLX_KEY_FILE or COLLX_KEY, or none of them any";
    [[noreturn, gnu::cold]] void fail_refused() const {
        const char* what = refused_for_ == detail::tcp_status::has_key      ? "has a key, and this rank has none"
                           : refused_for_ == detail::tcp_status::has_no_key ? "has no key, and this rank has one"
                                                                            : "has another key than this one";
        fail(errc::security, rank_, 0, same_key_remedy, "rank 0, which runs the store, %s", what);
    }

    // A socket that tries a free port of its own host again and again may be given this port as its own and connect to
    // itself.
    bool is_own_echo() const { return socket_address::of(socket_.get()) == address_; }

    [[gnu::cold]] answer ask(detail::tcp_word word, name_view key, name_view value, std::int64_t number,
                             const deadline& until) {
        detail::check_store_key(key);
        stop_listening();
        const came c = socket_.is_open() ? say(word, key, value, number, until) : came::lost;
        if (c != came::whole) fail_unheard(c);
        return require_ok(hear(until), key);
    }
    came say(detail::tcp_word word, name_view key, name_view value, std::int64_t number, const deadline& until) {
        detail::tcp_request q;
        q.word = word;
        q.key_bytes = static_cast<std::uint32_t>(key.size());
        q.value_bytes = static_cast<std::uint32_t>(value.size());
        q.number = number;
        kept_text frame(reinterpret_cast<const char*>(&q), sizeof q);
        frame += key;
        frame += value;
        return send_all(frame.data(), frame.size(), until);
    }
    [[gnu::cold]] answer hear(const deadline& until) {
        detail::tcp_reply r;
        answer a;
        came c = receive_all(&r, sizeof r, until);
        if (c == came::whole && !r.is_sound()) {
            socket_.close();
            fail(errc::protocol, rank_, 0, "build all ranks with the same version of collx",
                 "the store's answer makes no sense");
        }
        if (c == came::whole) {
            a.value.resize(r.value_bytes);
            c = receive_all(a.value.data(), a.value.size(), until);
        }
        if (c != came::whole) fail_unheard(c);
        a.number = r.number;
        a.status = r.status;
        has_ended_ |= r.status == detail::tcp_status::ended;
        return a;
    }
    [[gnu::cold]] answer require_ok(answer a, name_view key) const {
        switch (a.status) {
            case detail::tcp_status::ok:
            case detail::tcp_status::rung: break;
            case detail::tcp_status::timeout: detail::fail_store_timeout(key);
            case detail::tcp_status::ended:
                fail(errc::peer_failed, rank_, 0, "see the output of the rank that runs the store",
                     "rank 0 has ended the store");
            case detail::tcp_status::odd_rank:
                fail(errc::security, rank_, static_cast<int>(a.number), same_key_remedy,
                     "rank %d came to the store with another key than the others, or only one of both has one",
                     static_cast<int>(a.number));
            case detail::tcp_status::not_a_number: (void)detail::add_to_text(&(a.value = "x"), 0, key); break;
            default: fail(errc::resource, -1, -1, "store less, or use a new store", "the store is full");
        }
        return a;
    }
    [[noreturn, gnu::cold]] void fail_unheard(came c) {
        socket_.close(); // half an exchange cannot be resumed
        if (c == came::late)
            fail(errc::timeout, rank_, 0, "is the rank that runs the store alive?", "the store does not answer");
        fail_lost();
    }
    [[noreturn, gnu::cold]] void fail_lost() const {
        fail(errc::peer_failed, rank_, 0, "see the output of the rank that runs the store",
             "the connection to the store is lost");
    }

    came send_all(const void* data, std::size_t bytes, const deadline& until) {
        return detail::send_all(socket_.get(), data, bytes, until);
    }
    came receive_all(void* data, std::size_t bytes, const deadline& until) {
        return detail::receive_all(socket_.get(), data, bytes, until);
    }

    pid_t owner_;
    socket_address address_;
    descriptor socket_;
    int rank_, watching_rank_ = 0, watching_ranks_ = 0;
    job_key key_;
    deadline start_until_;
    bool is_starting_ = false, is_listening_ = false, has_ended_ = false;
    detail::tcp_status refused_for_ = detail::tcp_status::ok;
};

COLLX_END_NAMESPACE
