// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All COLLX_* environment variables in one table, and the checks of their values. A mistyped name or a value that makes
// no sense is an error that says what was meant, because a setting that silently does nothing is worse than none. Reads
// no variable by itself and knows nothing of jobs.
#pragma once

#include <strings.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE

// A variable of the environment that collx reads.
struct variable {
    // number: least..most · seconds: a fraction is allowed · flag: 0 or 1 · bytes: K, M, G, T are powers of 1024 ·
    // choice: one of `choices` · token: letters, digits and ._:- · store: file:DIR or tcp:HOST:PORT ·
    // address: see local_address.hpp · path: of a file · secret: never shown · foreign: of the project's own scripts,
    // not read by the library
    enum class kind { number, seconds, flag, bytes, choice, token, store, address, path, secret, foreign };
    const char* name;
    kind type;
    const char* fallback; // the value if it is not set
    const char* meaning;
    std::int64_t least = 0, most = 0;
    const char* choices = ""; // separated by |
};

// The largest job.
inline constexpr int most_ranks = 1 << 20;

inline constexpr variable variables[] = {
    {"COLLX_RANK", variable::kind::number, "0", "number of this process in the job", 0, most_ranks - 1},
    {"COLLX_SIZE", variable::kind::number, "1", "how many processes the job has", 1, most_ranks},
    {"COLLX_LOCAL_RANK", variable::kind::number, "COLLX_RANK", "number of this process on its host", 0, most_ranks - 1},
    {"COLLX_LOCAL_SIZE", variable::kind::number, "COLLX_SIZE", "processes of the job on this host", 1, most_ranks},
    {"COLLX_JOB", variable::kind::token, "", "name of this launch, the same for all its processes and for no other"},
    {"COLLX_STORE", variable::kind::store, "",
     "where processes without COLLX_JOB meet: file:DIR, a new one for each job, or tcp:HOST:PORT"},
    {"COLLX_HOST_ID", variable::kind::token, "the machine",
     "ranks with different words here do not share memory; needs COLLX_STORE"},
    {"COLLX_ADDRESS", variable::kind::address, "towards the store, or 127.0.0.1",
     "where ranks of other hosts reach this one: an address, interface, network a.b.c.d/n, route, or unix"},
    {"COLLX_INSECURE", variable::kind::flag, "0", "allow an address outside this host although the job has no key"},
    {"COLLX_KEY_FD", variable::kind::number, "", "descriptor of a file or pipe with the job's key; closed once read", 0,
     1 << 20},
    {"COLLX_KEY_FILE", variable::kind::path, "", "file with the job's key, readable by its owner alone"},
    {"COLLX_KEY", variable::kind::secret, "", "the job's key itself; erased once read"},
    {"COLLX_SECURITY", variable::kind::choice, "auth_only with a key", "what protects connections between hosts", 0, 0,
     "auth_only|integrity|encrypted"},
    {"COLLX_LANES", variable::kind::number, "1", "connections to each rank of another host for large messages", 1, 8},
    {"COLLX_OWN_CONNECTIONS", variable::kind::number, "4",
     "communicators with connections of their own; others share one to each rank, except by RDMA", 1, 100000},
    {"COLLX_TIMEOUT", variable::kind::seconds, "60", "how long calls wait for other ranks, in seconds"},
    {"COLLX_CHECKED", variable::kind::flag, "1 in debug builds", "compare the arguments of calls across ranks"},
    {"COLLX_ARENA_BYTES", variable::kind::bytes, "256G", "shared address space; only touched pages cost memory",
     1 << 20, std::int64_t{1} << 46},
    {"COLLX_WAIT", variable::kind::choice, "auto", "how to wait: auto yields when ranks share cores", 0, 0,
     "auto|spin|yield"},
    {"COLLX_SINGLE_COPY", variable::kind::choice, "auto",
     "whether large messages inside a machine are read where they are", 0, 0, "auto|never|always"},
    {"COLLX_VERBS", variable::kind::choice, "auto",
     "whether messages to other hosts go by RDMA, in a program that can: auto where both ends have a device", 0, 0,
     "auto|never|always"},
    {"COLLX_VERBS_DEVICE", variable::kind::token, "as COLLX_TOPOLOGY says, or the first with an active port",
     "this rank's RDMA device: NAME, NAME:PORT or NAME:PORT:GID_INDEX"},
    {"COLLX_TOPOLOGY", variable::kind::path, "",
     "NCCL topology file of this host, whose links the ranks' order follows; set on all ranks or on none"},
    {"COLLX_GPU", variable::kind::number, "by its place among the ranks of its host",
     "this rank's GPU in COLLX_TOPOLOGY, by its number there", 0, 4095},
    {"COLLX_MACHINE", variable::kind::path, "",
     "what calls cost on this machine, as collx_perf --fit wrote it; collx::explain predicts times with it"},
    {"COLLX_RECORD", variable::kind::number, "0, or 256 with COLLX_RECORD_DIR",
     "keep records of the last so many calls of each communicator", 0, 1 << 20},
    {"COLLX_RECORD_DIR", variable::kind::path, "",
     "directory for files with these records, one of each rank and communicator; collx_calls reads them"},
    {"COLLX_DEBUG", variable::kind::choice, "WARN",
     "what to print on stderr; INFO: a line about the job and each communicator, by its rank 0", 0, 0, "WARN|INFO"},
    {"COLLX_BOOTSTRAP", variable::kind::choice, "the first that applies", "who says which rank this is", 0, 0,
     "env|torch|pmi|pmix|slurm|kubernetes|single"},
    {"COLLX_EXAMPLE_SHORT", variable::kind::foreign, "0", "examples run their short form"},
    {"COLLX_TEST_NIGHTLY", variable::kind::foreign, "0", "tests run their long form"},
};

// Where variables are read from: NAME=value entries ending with a null pointer, like `environ`. Tests pass their own
// and never touch the real ones.
class environment {
public:
    environment() : entries_(::environ) {}
    explicit environment(const char* const* entries) : entries_(entries) {}

    // The value, or nullptr when it is not set. Cold, so that its callers count as cold and are compiled for size.
    [[gnu::cold, gnu::noinline]] const char* get(const char* name) const {
        const std::size_t length = std::strlen(name);
        for (auto e = entries_; e != nullptr && *e != nullptr; ++e)
            if (std::strncmp(*e, name, length) == 0 && (*e)[length] == '=') return *e + length + 1;
        return nullptr;
    }
    template <class Visit>
    void each(Visit&& visit) const {
        for (auto e = entries_; e != nullptr && *e != nullptr; ++e) visit(*e);
    }

private:
    const char* const* entries_;
};

namespace detail {

// A value in printable form: other bytes become '?', and a long value is cut.
struct printable {
    char text[64];
    explicit printable(const char* value, std::size_t length = SIZE_MAX) {
        std::size_t i = 0;
        for (; value[i] != '\0' && i < length && i < sizeof text - 4; ++i)
            text[i] = value[i] >= ' ' && value[i] <= '~' ? value[i] : '?';
        std::strcpy(text + i, i < length && value[i] != '\0' ? "..." : "");
    }
};

[[noreturn, gnu::cold]] inline void fail_value(const variable& v, const char* value, const char* wanted) {
    char remedy[160];
    std::snprintf(remedy, sizeof remedy, "give it %s, or unset it: %s", wanted, v.meaning);
    if (value[0] == '\0') fail(errc::environment, -1, -1, remedy, "%s is empty", v.name);
    if (v.type == variable::kind::secret)
        fail(errc::environment, -1, -1, remedy, "the value of %s makes no sense", v.name);
    fail(errc::environment, -1, -1, remedy, "%s=%s makes no sense", v.name, printable(value).text);
}

// Reads digits and moves past them; -1 if there is no number, or if it is above `most`.
inline std::int64_t read_digits(const char*& at, std::int64_t most) {
    if (*at < '0' || *at > '9') return -1;
    std::int64_t n = 0;
    for (; *at >= '0' && *at <= '9'; ++at) {
        n = n * 10 + (*at - '0');
        if (n > most) return -1;
    }
    return n;
}

[[gnu::cold]] inline std::int64_t read_number(const variable& v, const char* value) {
    const char* at = value;
    const std::int64_t n = read_digits(at, v.most);
    char wanted[80];
    std::snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", static_cast<long long>(v.least),
                  static_cast<long long>(v.most));
    if (n < v.least || *at != '\0') fail_value(v, value, wanted);
    return n;
}

// In nanoseconds. Parsed by hand, because the user's locale determines the decimal point of strtod().
[[gnu::cold]] inline std::int64_t read_seconds(const variable& v, const char* value) {
    const char* at = value;
    std::int64_t ns = read_digits(at, 1'000'000'000);
    bool is_good = ns >= 0;
    ns *= 1'000'000'000;
    if (is_good && *at == '.') {
        ++at;
        is_good = *at >= '0' && *at <= '9';
        for (std::int64_t unit = 100'000'000; *at >= '0' && *at <= '9'; ++at, unit /= 10) ns += (*at - '0') * unit;
    }
    if (!is_good || *at != '\0' || ns <= 0)
        fail_value(v, value, "seconds above 0 such as 30 or 0.5, at most 1000000000");
    return ns;
}

[[gnu::cold]] inline std::int64_t read_bytes(const variable& v, const char* value) {
    const char* at = value;
    std::int64_t n = read_digits(at, v.most);
    int shift = 0;
    if (const char* units = "KMGT"; *at != '\0')
        if (const char* unit = std::strchr(units, *at)) {
            shift = static_cast<int>(unit - units + 1) * 10;
            ++at;
        }
    if (n < 0 || *at != '\0' || n > v.most >> shift || n << shift < v.least)
        fail_value(v, value, "a size from 1M to 64T such as 512M or 4G");
    return n << shift;
}

// Index of the value among the choices.
[[gnu::cold]] inline int read_choice(const variable& v, const char* value) {
    const std::size_t length = std::strlen(value);
    int place = 0;
    for (const char* c = v.choices;; ++place) {
        const char* end = std::strchr(c, '|');
        const std::size_t n = end != nullptr ? static_cast<std::size_t>(end - c) : std::strlen(c);
        if (length == n && ::strncasecmp(c, value, n) == 0) return place;
        if (end == nullptr) break;
        c = end + 1;
    }
    char wanted[80];
    std::snprintf(wanted, sizeof wanted, "one of %s", v.choices);
    fail_value(v, value, wanted);
}

inline bool is_letter_or_digit(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
[[gnu::cold]] inline void check_token(const variable& v, const char* value) {
    const std::size_t length = std::strlen(value);
    bool is_good = length > 0 && length <= 128;
    for (std::size_t i = 0; is_good && i < length; ++i)
        is_good = is_letter_or_digit(value[i]) || std::strchr("._:-", value[i]) != nullptr;
    if (!is_good) fail_value(v, value, "1 to 128 letters, digits or any of ._:-");
}

[[gnu::cold]] inline void check_store(const variable& v, const char* value) {
    if (std::strncmp(value, "file:", 5) == 0 && value[5] != '\0') return;
    if (std::strncmp(value, "tcp:", 4) == 0) {
        const char* colon = std::strrchr(value + 4, ':');
        const char* at = colon != nullptr ? colon + 1 : "";
        if (colon > value + 4 && read_digits(at, 65535) > 0 && *at == '\0') return;
    }
    fail_value(v, value, "file:DIRECTORY or tcp:ADDRESS:PORT");
}

// Checks the form only: whether the address exists, only its host knows.
[[gnu::cold]] inline void check_address(const variable& v, const char* value) {
    const std::size_t length = std::strlen(value);
    const bool is_unix = std::strncmp(value, "unix:", 5) == 0;
    bool is_good = length > 0 && length <= 128 && (!is_unix || (value[5] == '/' && length > 6));
    for (std::size_t i = 0; is_good && i < length; ++i)
        is_good = is_unix ? value[i] >= ' ' && value[i] <= '~'
                          : is_letter_or_digit(value[i]) || std::strchr("._:-/%[]@", value[i]) != nullptr;
    if (!is_good)
        fail_value(v, value, "an address, an interface, a network such as 10.0.0.0/8, route, unix, or unix:/DIRECTORY");
}

[[gnu::cold]] inline void check_value(const variable& v, const char* value) {
    switch (v.type) {
        case variable::kind::number: (void)read_number(v, value); break;
        case variable::kind::seconds: (void)read_seconds(v, value); break;
        case variable::kind::flag:
            if (std::strcmp(value, "0") != 0 && std::strcmp(value, "1") != 0) fail_value(v, value, "0 or 1");
            break;
        case variable::kind::bytes: (void)read_bytes(v, value); break;
        case variable::kind::choice: (void)read_choice(v, value); break;
        case variable::kind::token: check_token(v, value); break;
        case variable::kind::store: check_store(v, value); break;
        case variable::kind::address: check_address(v, value); break;
        case variable::kind::path:
            if (value[0] == '\0') fail_value(v, value, "the name of a file");
            break;
        case variable::kind::secret: {
            const std::size_t bytes = std::strlen(value);
            if (bytes < 32 || bytes > 1024 + 9) fail_value(v, value, "32 to 1024 bytes");
            break;
        }
        case variable::kind::foreign: break;
    }
}

// Number of letters to add, remove or change to make one name the other.
[[gnu::cold]] inline int edit_distance(const char* a, std::size_t a_length, const char* b) {
    constexpr std::size_t most = 40;
    const std::size_t b_length = std::strlen(b);
    if (a_length >= most || b_length >= most) return static_cast<int>(most);
    int row[most] = {};
    for (std::size_t j = 0; j <= b_length; ++j) row[j] = static_cast<int>(j);
    for (std::size_t i = 1; i <= a_length; ++i) {
        int diagonal = row[0];
        row[0] = static_cast<int>(i);
        for (std::size_t j = 1; j <= b_length; ++j) {
            const int change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            const int step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < step ? change : step;
        }
    }
    return row[b_length];
}

// The known name that was probably meant, in capitals or not: at most two letters differ, and at most half of those
// after COLLX_. nullptr: none.
[[gnu::cold]] inline const variable* resembled_by(const char* name, std::size_t length) {
    char capitals[40];
    if (length >= sizeof capitals) return nullptr;
    for (std::size_t i = 0; i < length; ++i)
        capitals[i] = static_cast<char>(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
    const int most = length >= 10 ? 2 : static_cast<int>(length - 6) / 2;
    const variable* nearest = nullptr;
    int least = most + 1;
    for (const variable& v : variables) {
        if (v.type == variable::kind::foreign) continue;
        const int d = edit_distance(capitals, length, v.name);
        if (d < least) {
            least = d;
            nearest = &v;
        }
    }
    return nearest;
}

// A mistyped name is an error, because the setting would silently be lost. Any other name may belong to a script; the
// first of them in a process causes a warning.
[[gnu::cold]] inline void refuse_unknown(const char* name, std::size_t length) {
    const printable shown(name, length);
    if (const variable* meant = resembled_by(name, length)) {
        char remedy[120];
        std::snprintf(remedy, sizeof remedy, "did you mean %s? Otherwise unset it", meant->name);
        fail(errc::environment, -1, -1, remedy, "unknown variable %s", shown.text);
    }
    [[maybe_unused]] static const int warned =
        std::fprintf(stderr, "collx: warning: unknown variable %s is ignored\n", shown.text);
}

} // namespace detail

// Throws errc::environment for the first COLLX_* entry with a value that makes no sense, or with an unknown name that
// resembles a known one. Warns once per process, on stderr, of another unknown name.
[[gnu::cold]] inline void check_variables(const environment& env) {
    env.each([](const char* entry) {
        if (std::strncmp(entry, "COLLX_", 6) != 0) return;
        const char* equals = std::strchr(entry, '=');
        if (equals == nullptr) return;
        const auto length = static_cast<std::size_t>(equals - entry);
        for (const variable& v : variables)
            if (std::strlen(v.name) == length && std::memcmp(v.name, entry, length) == 0)
                return detail::check_value(v, equals + 1);
        detail::refuse_unknown(entry, length);
    });
}

COLLX_END_NAMESPACE
