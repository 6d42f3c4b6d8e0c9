// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transports that a program lets its ranks use, as a list known at compile time. Each peer gets the first transport
// that reaches it. This is decided when the job starts, so no call decides it again.
//
//   using namespace collx;
//   communicator world(per_peer{shm{}, verbs{}, sockets{}});   // what `communicator world;` means
//   communicator world(per_peer{shm{}, sockets{}});            // no RDMA, although there may be devices
//   communicator world(per_peer{sockets{}});                   // sockets also inside a host
//   communicator world(per_peer{shm{}});                       // on one host, or an error
//   communicator world(per_peer{shm{}, verbs{}});              // RDMA to other hosts, or an error
//
// A transport is a type with a name and `carries(relation)`: transport_concept.hpp. The code that carries the bytes is
// in shm.hpp, memory.hpp and remote_links.hpp; a program's own transport brings its own (job/custom_transport.hpp).
// Devices have a separate list (nvlink.hpp, pcie.hpp, gpu_links.hpp).
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>

#include <collx/transport/transport_concept.hpp>

COLLX_BEGIN_NAMESPACE

// Memory that both ranks see: threads and processes of one host.
struct shm {
    static constexpr const char* name = "shm";
    static constexpr bool carries(relation r) { return r.share_memory; }
};
// RDMA over InfiniBand or RoCE, in a program that includes interop/libibverbs.hpp. A socket to the same peer carries
// the words beside the messages.
struct verbs {
    static constexpr const char* name = "verbs";
    static constexpr bool carries(relation r) { return r.have_verbs; }
};
// TCP or unix sockets; COLLX_ADDRESS says which.
struct sockets {
    static constexpr const char* name = "sockets";
    static constexpr bool carries(relation) { return true; }
};

namespace detail {

template <class T>
concept LibraryTransport = std::same_as<T, shm> || std::same_as<T, verbs> || std::same_as<T, sockets>;
struct custom_transport; // how a program's own transport is started, when the program runs
template <class T>
struct custom_transport_of; // defined in job/custom_transport.hpp

// Checks a type in a list, and says in one sentence what it lacks.
template <class T>
constexpr bool require_transport() {
    static_assert(Transport<T>, "collx: a transport has a name (static constexpr const char*) and a static constexpr "
                                "bool carries(collx::relation)");
    if constexpr (LibraryTransport<T>) {
        return true;
    } else {
        constexpr bool has_endpoint = requires { typename T::endpoint; };
        static_assert(has_endpoint, "collx: a transport of the program's own has an endpoint: see "
                                    "collx/transport/transport_concept.hpp");
        constexpr bool is_brought_up = requires { sizeof(custom_transport_of<T>); };
        static_assert(is_brought_up, "collx: a transport of the program's own needs "
                                     "#include <collx/job/custom_transport.hpp>");
        if constexpr (has_endpoint) return require_endpoint<typename T::endpoint>();
        return is_brought_up;
    }
}

// The names of a list, with commas between.
template <class... Candidates>
struct names_of {
    static constexpr std::size_t length(const char* text) {
        std::size_t n = 0;
        while (text[n] != '\0') ++n;
        return n;
    }
    static constexpr std::size_t bytes = (length(Candidates::name) + ... + sizeof...(Candidates));
    static_assert(bytes <= 80, "collx: the names of the transports in a per_peer have 80 characters at most");
    struct joined_text {
        char at[bytes + 1] = {};
        constexpr joined_text() {
            std::size_t used = 0;
            const auto add = [&](const char* name) {
                if (used != 0) at[used++] = ',';
                for (; *name != '\0'; ++name) at[used++] = *name;
            };
            (add(Candidates::name), ...);
        }
    };
    static constexpr joined_text value{};
};

} // namespace detail

// Whether messages to other hosts go by RDMA.
enum class verbs_use : unsigned char { never, where_possible, always };

// A list of transports at run time: what start-up needs of it.
struct transports {
    bool use_memory = true;  // for ranks that can share it
    bool cross_hosts = true; // ranks on other hosts are reached at all
    verbs_use by_verbs = verbs_use::where_possible;
    const char* text = "shm,verbs,sockets";
    const detail::custom_transport* custom = nullptr; // carries to peers that share no memory, instead of the others
    friend constexpr bool operator==(const transports& a, const transports& b) {
        return a.use_memory == b.use_memory && a.cross_hosts == b.cross_hosts && a.by_verbs == b.by_verbs &&
               a.custom == b.custom;
    }
};

template <class... Candidates>
struct per_peer {
    static_assert(sizeof...(Candidates) != 0,
                  "collx: per_peer needs a transport: shm{}, verbs{}, sockets{}, or several");
    static_assert((detail::require_transport<Candidates>() && ...));

    constexpr explicit per_peer(Candidates...) {}

    static constexpr int size = sizeof...(Candidates);
    // The place in the list of the transport to a peer with this relation; -1: none reaches it.
    static constexpr int choose(relation r) {
        int at = 0, found = -1;
        ((found = found < 0 && Candidates::carries(r) ? at : found, ++at), ...);
        return found;
    }
    template <class T>
    static constexpr bool has = (std::same_as<Candidates, T> || ...);
    constexpr operator transports() const { // NOLINT(google-explicit-constructor): a list is meant as one
        constexpr verbs_use by = !has<verbs>    ? verbs_use::never
                                 : has<sockets> ? verbs_use::where_possible
                                                : verbs_use::always;
        const detail::custom_transport* custom = nullptr;
        (find_custom<Candidates>(custom), ...);
        constexpr bool cross_hosts = choose({}) >= 0 || choose({.have_verbs = true}) >= 0;
        return {has<shm>, cross_hosts, by, detail::names_of<Candidates...>::value.at, custom};
    }

private:
    template <class T>
    static constexpr void find_custom(const detail::custom_transport*& found) {
        if constexpr (!detail::LibraryTransport<T>) found = &detail::custom_transport_of<T>::value;
    }
    static constexpr int customs = (0 + ... + !detail::LibraryTransport<Candidates>);
    static_assert(customs == 0 || size == customs + int{has<shm>},
                  "collx: a transport of the program's own stands in a per_peer alone or behind shm");
    static_assert(customs <= 1, "collx: a per_peer has one transport of the program's own at most");
    static_assert(customs == 0 || choose({.share_memory = true}) >= 0,
                  "collx: a transport that stands alone in a per_peer carries to ranks of its own host, too");
    // Whether each transport is the choice for some peer, with devices or without.
    static constexpr bool all_serve() {
        bool serves[sizeof...(Candidates) + 1] = {}, is_memory_first = true;
        for (const bool here : {false, true})
            for (const bool devices : {false, true}) {
                const int at = choose({.share_memory = here, .have_verbs = devices});
                serves[at < 0 ? size : at] = true;
                is_memory_first = is_memory_first && (!here || at == choose({.share_memory = true}));
            }
        for (int at = 0; at < size; ++at)
            if (!serves[at]) return false;
        return is_memory_first || !has<shm>;
    }
    static_assert(sizeof...(Candidates) == 0 || all_serve(),
                  "collx: a transport in this per_peer is never chosen: sockets reach every peer, so shm comes first, "
                  "then verbs");
};
template <class... Candidates>
per_peer(Candidates...) -> per_peer<Candidates...>;

COLLX_END_NAMESPACE
