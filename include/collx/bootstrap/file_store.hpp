// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The store of processes that share a directory, on one host or over a network file system. Each key is a file, written
// under a temporary name and renamed, so no reader sees half a value. The directory belongs to one user (0700) and to
// one job. Its files stay until the maker of the directory removes it.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include <collx/bootstrap/detail/plain_word.hpp>
#include <collx/bootstrap/store.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/joined.hpp>
#include <collx/core/kept_text.hpp>
#include <collx/core/system_limits.hpp>

COLLX_BEGIN_NAMESPACE

class file_store final : public store_alarm {
public:
    // Creates the directory if it does not exist (its parent must). Errors: environment if it belongs to or is open to
    // others.
    [[gnu::cold]] explicit file_store(kept_text directory) : path_(static_cast<kept_text&&>(directory)) {
        if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) fail_at("make", path_.c_str());
        directory_ = descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
        struct stat about {};
        if (!directory_.is_open() || ::fstat(directory_.get(), &about) != 0) fail_at("open", path_.c_str());
        if (about.st_uid != ::geteuid() || (about.st_mode & 077) != 0)
            fail(errc::environment, -1, -1, "use a directory of your own with mode 0700",
                 "the store directory %.200s is open to other users", path_.c_str());
    }

    void set(name_view key, name_view value) {
        detail::check_store_key(key);
        detail::check_store_value(value);
        write(file_of(key), key, value);
    }
    kept_text get(name_view key, const deadline& until) {
        kept_text value;
        (void)get_or_bell(key, "", until, value);
        return value;
    }
    std::int64_t add(name_view key, std::int64_t delta) {
        detail::check_store_key(key);
        const kept_text file = file_of(key);
        const descriptor held_lock = lock();
        kept_text held;
        const bool is_there = read(file, key, held);
        const std::int64_t sum = detail::add_to_text(is_there ? &held : nullptr, delta, key);
        write(file, key, detail::joined({sum}));
        return sum;
    }
    void barrier(name_view name, int ranks, const deadline& until) {
        detail::barrier_by_counting(*this, name, ranks, until);
    }
    file_store(file_store&&) = default;
    ~file_store() { leave(); }

    // ------------------------------------------------------------------ store_alarm
    // A rank that takes part holds a lock on a file; the kernel releases the lock when the process ends. The file
    // contains the number of the meeting. On a file system without locks the death of a rank goes unnoticed here.
    void appear(int rank, int ranks, const deadline& until) override {
        rank_ = rank;
        ranks_ = ranks;
        number_ = 0;
        next_ = rank + 1;
        start_until_ = until;
        has_found_ = false;
        const kept_text aside = name_aside();
        presence_ = descriptor(::openat(directory_.get(), aside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!presence_.is_open()) fail_at("write", aside.c_str());
        if (::flock(presence_.get(), LOCK_EX | LOCK_NB) != 0) {
            presence_.close();
            ::unlinkat(directory_.get(), aside.c_str(), 0);
            return;
        }
        owner_ = ::getpid();
        if (::renameat(directory_.get(), aside.c_str(), directory_.get(), presence_of(rank).c_str()) != 0)
            give_up("rename", aside.c_str());
    }
    void watch(std::int64_t number, name_view bell) override {
        number_ = number;
        first_bell_ = kept_text(bell);
        if (presence_.is_open()) (void)!::pwrite(presence_.get(), &number, sizeof number, 0);
    }
    // Removes the name before it releases the lock, so a rank that has left is not taken for dead.
    void leave() override {
        start_until_ = {};
        if (!presence_.is_open()) return;
        if (owner_ == ::getpid()) ::unlinkat(directory_.get(), presence_of(rank_).c_str(), 0);
        presence_.close();
    }
    kept_text claim(name_view key, name_view value, bool& is_mine) override {
        detail::check_store_key(key);
        detail::check_store_value(value);
        const kept_text file = file_of(key), aside = write_aside(key, value);
        is_mine = ::linkat(directory_.get(), aside.c_str(), directory_.get(), file.c_str(), 0) == 0;
        if (!is_mine && errno != EEXIST) give_up("link", aside.c_str());
        ::unlinkat(directory_.get(), aside.c_str(), 0);
        kept_text held(value);
        if (!is_mine && !read(file, key, held)) fail_at("read", file.c_str());
        return held;
    }
    bool get_or_bell(name_view key, name_view bell, const deadline& until, kept_text& value) override {
        detail::check_store_key(key);
        const kept_text file = file_of(key);
        for (detail::retry_pause pause(5'000'000);;) {
            if (read(file, key, value)) return true;
            if (!bell.empty() && is_rung(bell, value)) return false;
            if (!pause.sleep(until)) detail::fail_store_timeout(key);
        }
    }
    bool arrive(name_view first_bell, name_view bell, const deadline& until, kept_text& value) override {
        const kept_text second = detail::second_bell(first_bell);
        if (add(detail::joined({first_bell, "/joined"}), 1) == ranks_) {
            bool is_mine = false;
            const kept_text held = claim(second, detail::start_done, is_mine);
            (void)claim(first_bell, held, is_mine);
        }
        return get_or_bell(second, bell, until, value);
    }
    bool is_rung(name_view bell, kept_text& value) override {
        if (now_ns() >= look_at_ns_) look_for_the_dead();
        return read(file_of(bell), bell, value);
    }
    bool has_ended() const override { return true; } // it has no server that could die

private:
    static kept_text presence_of(int rank) { return detail::joined({"alive.", rank}); }
    // Each look checks a few ranks; ranks that wait start at different places, so many of them soon check all.
    [[gnu::cold]] void look_for_the_dead() {
        look_at_ns_ = now_ns() + 10'000'000;
        for (int i = 0; i < 16 && i < ranks_ && !has_found_; ++i, ++next_) {
            const int r = next_ % ranks_;
            if (r == rank_ || !is_dead(r)) continue;
            bool is_mine = false;
            const kept_text held = claim(detail::second_bell(first_bell_), detail::verdict_of_death(r), is_mine);
            (void)claim(first_bell_, held, is_mine);
            has_found_ = true; // one is enough
            return;
        }
    }
    // True if the rank's file exists and is not locked. A file from an earlier meeting says nothing about this one.
    bool is_dead(int rank) const {
        const descriptor fd(::openat(directory_.get(), presence_of(rank).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (!fd.is_open() || ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0) return false;
        struct stat about {};
        std::int64_t number = 0;
        if (::fstat(fd.get(), &about) != 0 || about.st_nlink == 0) return false; // it has left meanwhile
        (void)!::pread(fd.get(), &number, sizeof number, 0);
        return number_ == 1 || number >= number_;
    }

    [[noreturn, gnu::cold]] void fail_at(const char* what, const char* name) const {
        const int reason = errno;
        const char* const remedy =
            reason == EMFILE || reason == ENFILE   ? detail::remedy_for_descriptor(reason)
            : reason == EFBIG                      ? "raise the file size limit (ulimit -f)"
            : reason == ENOSPC || reason == EDQUOT ? "free space there, or give COLLX_STORE a directory that has some"
            : reason == EROFS || reason == EACCES  ? "give COLLX_STORE a directory that this user may write to"
                                                   : "is the directory there, and writable?";
        const bool is_short =
            reason == EMFILE || reason == ENFILE || reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
        fail(is_short ? errc::resource : errc::environment, -1, -1, remedy, "cannot %s %.200s in the store: %s", what,
             name, std::strerror(reason));
    }

    // File name of a key; a hash where it would be too long (the file itself contains the key).
    [[gnu::cold]] static kept_text file_of(name_view key) {
        kept_text name = "k.";
        detail::append_plain(name, key);
        if (name.size() <= 200) return name;
        char hashed[40];
        std::snprintf(hashed, sizeof hashed, "h.%016llx%016llx",
                      static_cast<unsigned long long>(detail::hash_bytes(key.data(), key.size(), 1)),
                      static_cast<unsigned long long>(detail::hash_bytes(key.data(), key.size(), 2)));
        return hashed;
    }

    // Content: key length as three digits, key, value.
    void write(const kept_text& file, name_view key, name_view value) {
        const kept_text aside = write_aside(key, value);
        if (::renameat(directory_.get(), aside.c_str(), directory_.get(), file.c_str()) != 0)
            give_up("rename", aside.c_str());
    }
    static kept_text name_aside() {
        static atomic<unsigned> number{0};
        char aside[80];
        std::snprintf(aside, sizeof aside, "w.%d-%u-%llx", ::getpid(), number.fetch_add(1, memory_order::relaxed),
                      static_cast<unsigned long long>(now_ns()));
        return aside;
    }
    [[gnu::cold]] kept_text write_aside(name_view key, name_view value) const {
        const kept_text aside_name = name_aside();
        const char* const aside = aside_name.c_str();
        char length[4];
        std::snprintf(length, sizeof length, "%03u", static_cast<unsigned>(key.size() % 1000));
        kept_text content = length;
        content += key;
        content += value;
        descriptor fd(::openat(directory_.get(), aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!fd.is_open()) fail_at("write", aside);
        for (std::size_t done = 0; done < content.size();) {
            const ssize_t n =
                detail::without_eintr([&] { return ::write(fd.get(), content.data() + done, content.size() - done); });
            if (n <= 0) give_up("write", aside);
            done += static_cast<std::size_t>(n);
        }
        // Network file systems report only here that there was no room. (After EINTR it is closed all the same.)
        if (::close(fd.release()) != 0 && errno != EINTR) give_up("write", aside);
        return aside_name;
    }
    [[noreturn, gnu::cold]] void give_up(const char* what, const char* aside) const {
        const int reason = errno;
        ::unlinkat(directory_.get(), aside, 0);
        errno = reason;
        fail_at(what, aside);
    }

    [[gnu::cold]] bool read(const kept_text& file, name_view key, kept_text& value) const {
        const descriptor fd(::openat(directory_.get(), file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (!fd.is_open()) {
            if (errno == ENOENT || errno == ESTALE) return false;
            fail_at("read", file.c_str());
        }
        constexpr std::size_t most = 3 + most_key_bytes + most_value_bytes;
        kept_text content;
        char part[4096];
        for (ssize_t n; content.size() <= most; content.append({part, static_cast<std::size_t>(n)})) {
            n = detail::without_eintr([&] { return ::read(fd.get(), part, sizeof part); });
            if (n < 0) fail_at("read", file.c_str());
            if (n == 0) break;
        }
        char length[4];
        std::snprintf(length, sizeof length, "%03u", static_cast<unsigned>(key.size()));
        const bool is_sound = content.size() <= most && content.size() >= 3 + key.size() &&
                              content.starts_with(length) && name_view(content).substr(3, key.size()) == key;
        if (!is_sound)
            fail(errc::protocol, -1, -1, "use an empty directory for each job",
                 "%s in the store is not a value of this store", file.c_str());
        value = content.substr(3 + key.size());
        return true;
    }

    // Lets one rank add at a time. The kernel releases flock() when the process dies or the descriptor is closed. The
    // holder writes its rank into the file.
    [[gnu::cold]] descriptor lock() const {
        descriptor fd(::openat(directory_.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!fd.is_open()) fail_at("open", "lock");
        deadline until = deadline::in_ns(10'000'000'000);
        if (start_until_.at_ns < until.at_ns) until = start_until_;
        std::int32_t holder = rank_;
        for (detail::retry_pause pause(2'000'000); ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;) {
            if (errno != EWOULDBLOCK && errno != EINTR) fail_at("lock", "lock");
            if (pause.sleep(until)) continue;
            if (::pread(fd.get(), &holder, sizeof holder, 0) != sizeof holder || holder >= ranks_) holder = -1;
            const kept_text by = holder < 0 ? kept_text("another process") : detail::joined({"rank ", holder});
            fail(errc::timeout, rank_, holder < 0 ? -1 : holder, "is a process of the job stopped?",
                 "the store in %.200s stays locked by %s", path_.c_str(), by.c_str());
        }
        (void)!::pwrite(fd.get(), &holder, sizeof holder, 0);
        return fd;
    }

    kept_text path_;
    descriptor directory_, presence_;
    int rank_ = -1, ranks_ = 0, next_ = 0;
    pid_t owner_ = 0;
    std::int64_t number_ = 0, look_at_ns_ = 0;
    deadline start_until_;
    bool has_found_ = false; // a dead rank, in this meeting
    kept_text first_bell_;
};

COLLX_END_NAMESPACE
