// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bodies of flight_recorder.hpp.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <collx/bootstrap/detail/host_id.hpp>
#include <collx/core/descriptor.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/system_limits.hpp>
#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

[[gnu::cold]] inline kept_text record_path(const communicator_core& c, const char* directory) {
    char number[17];
    std::snprintf(number, sizeof number, "%016llx", static_cast<unsigned long long>(c.id));
    return joined({directory, "/", number, "-", c.home->rank, ".calls"});
}
// A process that still runs may have mapped an earlier file of that name. That file stays; the new one takes its
// name.
[[gnu::cold]] inline descriptor make_record_file(const communicator_core& c, const char* directory,
                                                 std::uint64_t bytes) {
    const kept_text path = record_path(c, directory);
    (void)::mkdir(directory, 0700); // if this fails and there is none, opening says why
    (void)::unlink(path.c_str());
    descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    // Allocates the blocks: a full disk is an error here, and not a signal in a later call.
    int reason = file.is_open() ? 0 : errno;
    if (reason == 0) // a signal may end it early on some file systems
        for (int tries = 0; tries < 1000; ++tries)
            if ((reason = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes))) != EINTR) break;
    if (reason != 0) {
        if (file.is_open()) (void)::unlink(path.c_str());
        fail(errc::resource, c.net.rank(), -1,
             "let COLLX_RECORD_DIR name a directory where this user may write and that has room, or unset it",
             "cannot record calls in %s: %s", path.c_str(), std::strerror(reason));
    }
    return file;
}

[[gnu::cold]] COLLX_ONCE flight_recorder::flight_recorder(communicator_core& c, int last, const char* directory,
                                                          const call_observer& observer)
    : core_(c), capacity_(static_cast<std::uint64_t>(last)),
      bytes_(sizeof(record_file) + capacity_ * sizeof(call_record)), directory_(directory), observer_(observer) {
    descriptor file;
    if (!directory_.empty()) file = make_record_file(c, directory, bytes_);
    void* const p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                           file.is_open() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file.get(), 0);
    if (p == MAP_FAILED) {
        const int reason = errno;
        if (file.is_open()) (void)::unlink(record_path(c, directory).c_str());
        collx::fail(errc::resource, c.net.rank(), -1, remedy_for_mapping(reason),
                    "cannot map %llu bytes for records of calls: %s", static_cast<unsigned long long>(bytes_),
                    std::strerror(reason));
    }
    timespec real{};
    ::clock_gettime(CLOCK_REALTIME, &real);
    head_ = static_cast<record_file*>(p);
    ring_ = reinterpret_cast<call_record*>(head_ + 1);
    head_->version = record_file::right_version;
    head_->record_bytes = sizeof(call_record);
    head_->host = host_id();
    head_->communicator = c.id;
    head_->monotonic_ns = now_ns();
    head_->real_ns = std::int64_t{real.tv_sec} * 1'000'000'000 + real.tv_nsec;
    head_->rank = c.net.rank();
    head_->size = c.net.size();
    head_->job_rank = c.home->rank;
    head_->capacity = last;
    std::memcpy(head_->magic, record_file::right_magic, sizeof head_->magic);
}

[[gnu::cold]] COLLX_ONCE flight_recorder::~flight_recorder() { ::munmap(head_, bytes_); }

template <std::size_t N>
void copy_word(char (&to)[N], const char* from) {
    std::size_t i = 0;
    for (; i + 1 < N && from[i] != '\0'; ++i) to[i] = from[i];
    to[i] = '\0';
}

COLLX_ONCE std::uint64_t flight_recorder::begin(const call_words& w) {
    run_ = nullptr;
    named_ = 0;
    if (blocking_ != 0) return 0;
    return blocking_ = named_ = enter(w);
}
COLLX_ONCE std::uint64_t flight_recorder::enter(const call_words& w) {
    const std::uint64_t ordinal = head_->begun + 1;
    call_record r{.ordinal = ordinal,
                  .number = core_.calls(),
                  .collective = w.is_message ? 0 : core_.sequence,
                  .bytes = w.bytes,
                  .begin_ns = now_ns(),
                  .peer = w.peer,
                  .kind = w.kind};
    copy_word(r.verb, w.verb);
    copy_word(r.algorithm, w.algorithm);
    ring_[(ordinal - 1) % capacity_] = r;
    head_->begun = ordinal;
    show(ordinal);
    return ordinal;
}
COLLX_ONCE void flight_recorder::called(const char* algorithm) {
    if (call_record* const r = at(named_)) copy_word(r->algorithm, algorithm);
}

COLLX_ONCE void flight_recorder::end(std::uint64_t ordinal) {
    if (ordinal == blocking_) {
        blocking_ = 0;
        run_ = nullptr;
    }
    call_record* const r = at(ordinal);
    if (r == nullptr || r->outcome != call_outcome::under_way) return;
    note_end(*r, call_outcome::done, {});
    show(ordinal);
}
COLLX_ONCE void flight_recorder::ended(operation& op, task_state s) {
    const std::uint64_t ordinal = op.recorded;
    op.recorded = 0; // it may be started again
    if (s == task_state::done) return end(ordinal);
    if (call_record* const r = at(ordinal)) note_place(*r, op);
    fail(ordinal, op.error.code());
}

COLLX_ONCE void flight_recorder::note_end(call_record& r, call_outcome o, errc code) const {
    r.end_ns = now_ns();
    r.outcome = o;
    r.code = code;
    if (o == call_outcome::done) r.peer = r.step = r.steps = r.piece = r.pieces = -1;
}
COLLX_ONCE void flight_recorder::note_place(call_record& r, const operation& op) const {
    const operation::place p = op.where();
    if (op.waiting_for >= 0 && op.waiting_for != core_.net.rank()) r.peer = op.waiting_for; // not a strand of its own
    r.step = p.step;
    r.steps = p.steps;
    r.piece = p.piece;
    r.pieces = p.pieces;
}

// An exception from the observer ends the communicator, as one from an operator does.
COLLX_ONCE void flight_recorder::show(std::uint64_t ordinal) {
    if (observer_.see == nullptr) return;
    const call_record* const r = at(ordinal);
    core_.with_user_code([&] { observer_.see(observer_.context, *r); });
}
// An error is already on its way to the program, so an exception from the observer is dropped.
COLLX_ONCE void flight_recorder::show_failed(const call_record& r) const noexcept {
    if (observer_.see == nullptr) return;
    const one_caller::user_code here(core_.caller);
    try {
        observer_.see(observer_.context, r);
    } catch (...) {
    }
}

[[gnu::cold]] COLLX_ONCE void flight_recorder::fail(std::uint64_t ordinal, errc code) noexcept {
    if (ordinal == blocking_) {
        blocking_ = 0;
        run_ = nullptr;
    }
    if (ordinal == unstarted_) unstarted_ = 0;
    call_record* const r = at(ordinal);
    if (r == nullptr || r->outcome != call_outcome::under_way) return;
    note_end(*r, call_outcome::failed, code);
    show_failed(*r);
}

[[gnu::cold]] COLLX_ONCE void flight_recorder::look(int waiting_for) noexcept {
    for (const auto& p : core_.pending)
        if (call_record* const r = at(p.op->recorded)) note_place(*r, *p.op);
    call_record* const r = at(blocking_);
    if (r == nullptr) return;
    if (run_ != nullptr) note_place(*r, *run_);
    else if (waiting_for >= 0) r->peer = waiting_for;
}

[[gnu::cold]] COLLX_ONCE void flight_recorder::fail_all(const failure& f, int waiting_for) noexcept {
    look(waiting_for);
    if (call_record* const r = at(blocking_); r != nullptr && r->peer < 0 && f.rank() != core_.net.rank())
        r->peer = f.rank(); // of its own failure a rank waits for none
    const std::uint64_t begun = head_->begun, first = begun > capacity_ ? begun - capacity_ + 1 : 1;
    for (std::uint64_t k = first; k <= begun; ++k) fail(k, f.code());
    if (directory_.empty() || is_said_) return;
    is_said_ = true;
    std::fprintf(stderr, "collx: rank %d: the last calls are recorded in %s (collx_calls %s)\n", core_.net.rank(),
                 directory_.c_str(), directory_.c_str());
}

[[gnu::cold]] COLLX_ONCE growing_array<call_record> flight_recorder::recent() const {
    growing_array<call_record> all;
    const std::uint64_t begun = head_->begun, first = begun > capacity_ ? begun - capacity_ + 1 : 1;
    for (std::uint64_t k = first; k <= begun; ++k) all.push_back(ring_[(k - 1) % capacity_]);
    return all;
}

} // namespace detail
COLLX_END_NAMESPACE
