// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The store of processes that share a directory, on one host or over a network file system: a file per key, written
// aside and renamed, so that nobody reads half a value. The directory belongs to this user alone (0700) and to one job;
// the files stay until whoever made the directory removes it.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include <collx/bootstrap/detail/joined.hpp>
#include <collx/bootstrap/store.hpp>
#include <collx/core/atomic.hpp>
#include <collx/core/kept_text.hpp>

COLLX_BEGIN_NAMESPACE

class file_store {
public:
    // Makes the directory if it is not there (its parent must be). Errors: environment if it belongs to or is open to
    // others.
    explicit file_store(kept_text directory) : path_(static_cast<kept_text&&>(directory)) {
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
        detail::check_store_key(key);
        const kept_text file = file_of(key);
        kept_text value;
        for (detail::retry_pause pause(5'000'000);;) {
            if (read(file, key, value)) return value;
            if (!pause.sleep(until)) detail::fail_store_timeout(key);
        }
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

private:
    [[noreturn, gnu::cold]] void fail_at(const char* what, const char* name) const {
        fail(errno == EMFILE || errno == ENFILE || errno == ENOSPC || errno == EDQUOT ? errc::resource
                                                                                      : errc::environment,
             -1, -1, "is the directory there, writable and not full?", "cannot %s %.200s in the store: %s", what, name,
             std::strerror(errno));
    }

    // Letters, digits and ._- stay, the rest becomes %xx; what gets too long for a file name becomes a hash (the file
    // says its key again).
    static kept_text file_of(name_view key) {
        kept_text name = "k.";
        for (const char c : key) {
            const bool stays = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
                               c == '_' || c == '-';
            char escaped[4];
            std::snprintf(escaped, sizeof escaped, "%%%02x", static_cast<unsigned char>(c));
            if (stays) name += c;
            else name += escaped;
        }
        if (name.size() <= 200) return name;
        char hashed[40];
        std::snprintf(hashed, sizeof hashed, "h.%016llx%016llx",
                      static_cast<unsigned long long>(detail::hash_bytes(key.data(), key.size(), 1)),
                      static_cast<unsigned long long>(detail::hash_bytes(key.data(), key.size(), 2)));
        return hashed;
    }

    // Content: key length as three digits, key, value.
    void write(const kept_text& file, name_view key, name_view value) {
        static atomic<unsigned> number{0};
        char aside[80], length[4];
        std::snprintf(aside, sizeof aside, "w.%d-%u-%llx", ::getpid(), number.fetch_add(1, memory_order::relaxed),
                      static_cast<unsigned long long>(now_ns()));
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
        // Network file systems say only here that there was no room. (After EINTR it is closed all the same.)
        if (::close(fd.release()) != 0 && errno != EINTR) give_up("write", aside);
        if (::renameat(directory_.get(), aside, directory_.get(), file.c_str()) != 0) give_up("rename", aside);
    }
    [[noreturn, gnu::cold]] void give_up(const char* what, const char* aside) const {
        const int reason = errno;
        ::unlinkat(directory_.get(), aside, 0);
        errno = reason;
        fail_at(what, aside);
    }

    bool read(const kept_text& file, name_view key, kept_text& value) const {
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

    // One adder at a time. flock() is let go by the kernel when its process dies, and by closing the descriptor.
    descriptor lock() const {
        descriptor fd(::openat(directory_.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!fd.is_open()) fail_at("open", "lock");
        const deadline until = deadline::in_ns(10'000'000'000);
        for (detail::retry_pause pause(2'000'000); ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;) {
            if (errno != EWOULDBLOCK && errno != EINTR) fail_at("lock", "lock");
            if (!pause.sleep(until))
                fail(errc::timeout, -1, -1, "is a process of the job stopped?", "the store in %.200s stays locked",
                     path_.c_str());
        }
        return fd;
    }

    kept_text path_;
    descriptor directory_;
};

COLLX_END_NAMESPACE
