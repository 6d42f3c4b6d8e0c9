// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One verdict for all ranks when a start fails, whatever each of them waits for: the store, the listener, or the memory
// of its host. The store notices a death and sets a key (the bell) that all waits check. The first rank whose time
// is over sets it, too, to a roll call, which each rank answers by setting a key of its own. The error names the ranks
// that do not answer (docs/design/startup.md).
#pragma once

#include <exception>

#include <collx/bootstrap/missing_ranks.hpp>
#include <collx/bootstrap/store.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/start_check.hpp>

COLLX_BEGIN_NAMESPACE

class start_watch final : public start_check {
public:
    // How long a rank may take to answer a roll call.
    static constexpr std::int64_t roll_ns = 500'000'000;

    // alarm: that of the store where the ranks meet. Null if the store has none: then nothing is watched.
    start_watch(store_alarm* alarm, int rank, int size, const deadline& until)
        : alarm_(size > 1 ? alarm : nullptr), rank_(rank), size_(size), until_(until) {
        if (alarm_ != nullptr) alarm_->appear(rank, size, until);
    }
    start_watch(const start_watch&) = delete;
    ~start_watch() {
        if (alarm_ == nullptr) return;
        try {
            alarm_->leave();
        } catch (const error&) { // the store has ended already
        }
    }
    bool is_on() const { return alarm_ != nullptr; }

    // Starts meeting `number`, whose keys begin with `turn`.
    void begin(std::int64_t number, const kept_text& turn) {
        number_ = number;
        turn_ = turn;
        first_ = bell_ = detail::joined({turn, "bell"});
        alarm_->watch(number, first_);
    }
    // Like get() of a store. whom: the rank that is to set the key.
    [[gnu::cold]] kept_text get(name_view key, int whom) {
        kept_text value;
        try {
            while (!alarm_->get_or_bell(key, bell_, until_, value)) hear(value);
            return value;
        } catch (const timed_out& e) {
            if (is_over_ || e.peer() >= 0) throw; // the store does not answer
        }
        fail(errc::timeout, rank_, whom, "is it alive? See its output", "rank %d came to the store and says no more",
             whom);
    }
    void throw_if_ended() override {
        if (alarm_ == nullptr || bell_.empty() || now_ns() < next_question_ns_) return;
        next_question_ns_ = now_ns() + interval_ns;
        kept_text said;
        if (alarm_->is_rung(bell_, said)) hear(said);
    }
    bool has_ended() const override { return is_over_; }
    // Returns when all ranks have joined. Collective. The verdict is the same for all ranks: a death counts either
    // before it or after it.
    [[gnu::cold]] void finish() {
        if (alarm_ == nullptr) return;
        const kept_text last = detail::second_bell(first_);
        kept_text said;
        try {
            bool is_done = alarm_->arrive(first_, bell_, until_, said);
            while (!is_done && said.starts_with("r")) {
                answer();
                is_done = alarm_->get_or_bell(last, bell_, until_, said);
            }
        } catch (const peer_failed&) {
            // The rank that runs the store died. Ranks that already know that all have joined must find it dead before
            // this rank leaves.
            detail::nap_ns(roll_ns / 2);
            throw;
        }
        if (said != detail::start_done) throw_verdict(said);
    }
    // Runs f(), which brings the job up. An error of f() becomes the error of all ranks.
    template <class F>
    auto guard(F&& f) {
        try {
            return f();
        } catch (const error& e) {
            if (alarm_ == nullptr || is_over_ || bell_.empty()) throw;
            const error mine = e;
            end(mine);
        } catch (...) {
            if (alarm_ != nullptr && !is_over_ && !bell_.empty())
                say_last(detail::joined({"f", static_cast<int>(errc::aborted), " ", rank_, " rank ", rank_,
                                         " left while the ranks came together"}));
            throw;
        }
    }

private:
    // Handles the bell's value: a roll call or the verdict.
    void hear(const kept_text& said) {
        if (said.starts_with("r")) return answer();
        throw_verdict(said);
    }
    void answer() {
        bell_ = detail::second_bell(first_);
        bool is_mine = false;
        (void)alarm_->claim(detail::joined({turn_, "here/", rank_}), "", is_mine);
    }
    [[noreturn, gnu::cold]] void throw_verdict(const kept_text& said) {
        is_over_ = true; // for this rank
        std::int64_t code = 0, who = -1;
        const std::size_t blank = said.find(' '), next = blank == kept_text::npos ? blank : said.find(' ', blank + 1);
        const bool is_sound = said.starts_with("f") && next != kept_text::npos &&
                              detail::read_sum(name_view(said).substr(1, blank - 1), code) &&
                              detail::read_sum(name_view(said).substr(blank + 1, next - blank - 1), who) &&
                              is_errc(code);
        if (!is_sound)
            fail(errc::protocol, rank_, -1, "use a store of its own for each job",
                 "something unknown rang the bell of the start");
        if (static_cast<errc>(code) == errc::timeout)
            detail::fail_missing(said.c_str() + next + 1, rank_, static_cast<int>(who));
        fail(static_cast<errc>(code), rank_, static_cast<int>(who), "see the output of that rank", "%s",
             said.c_str() + next + 1);
    }

    // Ends the start after this rank failed. Throws the verdict of all ranks: this failure, unless another came first.
    [[noreturn, gnu::cold]] void end(const error& mine) {
        const bool is_about_other = mine.peer() >= 0 && mine.peer() != rank_;
        // Each rank finds such an error by itself, with the same text.
        if (is_about_other && mine.code() != errc::timeout && mine.code() != errc::peer_failed) raise(mine);
        try {
            if (mine.code() == errc::timeout) call_roll(mine);
            else if (is_about_other) announce(errc::peer_failed, mine.peer(), text_of(mine));
            else announce(mine.code(), rank_, detail::joined({"rank ", rank_, " cannot join: ", text_of(mine)}), &mine);
        } catch (const error&) {
            // The store failed: the rank that runs it is dead or silent, unless it has left with its work done.
            if (is_over_ || !alarm_->has_ended()) throw;
        }
        raise(mine);
    }
    // The message without "collx: rank N: ".
    [[gnu::cold]] static kept_text text_of(const error& e) {
        name_view text(e.what());
        const kept_text before =
            e.rank() >= 0 ? detail::joined({"collx: rank ", e.rank(), ": "}) : kept_text("collx: ");
        if (kept_text(text).starts_with(before)) text = text.substr(before.size());
        return kept_text(text).substr(0, text.size() < 250 ? text.size() : 250);
    }
    // Claims the verdict; an earlier verdict counts. own: what this rank throws if its verdict counts.
    [[gnu::cold]] void announce(errc code, int who, const kept_text& text, const error* own = nullptr) {
        const kept_text said = detail::joined({"f", static_cast<int>(code), " ", who, " ", text});
        const kept_text held = say_last(said);
        if (own != nullptr && held == said) {
            is_over_ = true;
            raise(*own);
        }
        if (held == detail::start_done) return; // all had joined
        throw_verdict(held);
    }
    kept_text say_last(const kept_text& said) {
        bool is_mine = false;
        const kept_text held = alarm_->claim(detail::second_bell(first_), said, is_mine);
        (void)alarm_->claim(first_, held, is_mine);
        return held;
    }

    [[gnu::cold]] void call_roll(const error& mine) {
        bool is_mine = false;
        const kept_text held = alarm_->claim(first_, "r", is_mine);
        if (held == detail::start_done) return;
        if (!held.starts_with("r")) throw_verdict(held);
        if (!(name_view(bell_) == name_view(detail::second_bell(first_)))) answer();
        kept_text said;
        const deadline enough = deadline::in_ns(is_mine ? roll_ns : 3 * roll_ns);
        int answered = 0; // all ranks below this number have answered
        // The rank that called counts the answers; the others wait for its verdict.
        for (detail::retry_pause pause(20'000'000); !is_mine || answered < size_;) {
            while (is_mine && answered < size_ && is_there(detail::joined({turn_, "here/", answered}))) ++answered;
            if (alarm_->is_rung(bell_, said)) return said == detail::start_done ? void() : throw_verdict(said);
            if (!pause.sleep(enough)) break;
        }
        if (!is_mine) raise(mine); // the rank that called has fallen silent itself
        name_the_silent(mine, answered);
    }
    // from: all ranks below it have answered, so with the first look there is a rank to name, however long looks take.
    [[gnu::cold]] void name_the_silent(const error& mine, int from) {
        kept_text absent;
        int first_absent = -1, absents = 0, silent = -1;
        const deadline enough = deadline::in_ns(roll_ns);
        int r = from;
        for (; r < size_ && (r == from || !enough.passed()); ++r) {
            if (is_there(detail::joined({turn_, "here/", r}))) continue;
            std::int64_t its = 0;
            const bool has_come = has(detail::joined({"collx/turn/", r}), its);
            if (has_come && its < number_)
                return announce(errc::timeout, r, detail::fewer_starts_text(r, its, number_));
            if (has_come) {
                if (silent < 0) silent = r;
                continue;
            }
            if (absents++ == 0) first_absent = r;
            if (absent.size() < 100) absent = detail::joined({absent, absent.empty() ? "" : ", ", r});
        }
        if (absents > 0 && silent < 0)
            return announce(errc::timeout, first_absent,
                            detail::joined({r == size_ ? "" : "at least ", absents, " of ", size_,
                                            " ranks did not come to the store: ", absent,
                                            r == size_ && absent.size() < 100 ? "" : " and more"}));
        if (silent >= 0)
            return announce(errc::timeout, silent,
                            detail::joined({"rank ", silent, " came to the store and says no more"}));
        announce(errc::timeout, mine.peer(), text_of(mine)); // all have answered: the verdict is this rank's own error
    }
    bool is_there(const kept_text& key) {
        std::int64_t any = 0;
        return has(key, any);
    }
    // Whether there is such a key; n: the number that it has, if it is one.
    [[gnu::cold]] bool has(const kept_text& key, std::int64_t& n) {
        try {
            kept_text value;
            (void)alarm_->get_or_bell(key, "", deadline{1}, value);
            (void)detail::read_sum(value, n);
            return true;
        } catch (const timed_out& e) {
            if (e.peer() >= 0) throw;
            return false;
        }
    }

    store_alarm* alarm_;
    int rank_, size_;
    deadline until_;
    std::int64_t number_ = 0, next_question_ns_ = 0;
    kept_text turn_, first_, bell_; // bell_: the one to check
    bool is_over_ = false;          // this rank knows the verdict
};

COLLX_END_NAMESPACE
