// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RDMA through libibverbs: a program that includes this header anywhere and links collx::verbs can use InfiniBand and
// RoCE devices (docs/design/verbs.md). This file chooses the device. The caller exchanges the addresses of queue
// pairs, so librdmacm is not needed; iWARP, which needs it, is not supported.
// collx-header: needs=verbs
#pragma once

#include <cstdarg>

#include <collx/core/provided.hpp>
#include <collx/interop/libibverbs_queue_pair.hpp>
#include <collx/net.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

using verbs_context_handle = verbs_handle<ibv_context, ibv_close_device>;
using verbs_domain_handle = verbs_handle<ibv_pd, ibv_dealloc_pd>;

// Why a device is not used.
struct verbs_refusal {
    char text[240] = "";
    const char* remedy = "";
    [[gnu::cold, gnu::format(printf, 3, 4)]] void set(const char* what_to_do, const char* format, ...) {
        remedy = what_to_do;
        va_list args;
        va_start(args, format);
        std::vsnprintf(text, sizeof text, format, args);
        va_end(args);
    }
};

class libibverbs_device final : public verbs_device {
public:
    libibverbs_device(verbs_context_handle context, verbs_domain_handle domain, const verbs_port& port)
        : context_(std::move(context)), domain_(std::move(domain)), port_(port) {}
    const char* name() const override { return port_.name; }
    std::uint32_t most_write_bytes() const override { return port_.attributes.max_msg_sz; }
    std::uint32_t most_head_bytes() const override { return port_.most_inline_bytes; }
    sole_ptr<verbs_memory> register_memory(std::byte* at, std::size_t bytes, peers_may access) override {
        const int flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          (access == peers_may::write_and_read ? IBV_ACCESS_REMOTE_READ : 0);
        verbs_region_handle region(::ibv_reg_mr(domain_.get(), at, bytes, static_cast<unsigned>(flags)));
        if (!region) fail_verbs_limit(port_, "registered memory", bytes, errno);
        return make_sole<libibverbs_memory>(std::move(region));
    }
    sole_ptr<queue_pair> make_queue_pair(const verbs_limits& limits) override {
        const auto sends = static_cast<long>(limits.sends) + limits.writes + limits.transfers;
        if (sends > port_.limits.max_qp_wr || limits.receives > port_.limits.max_qp_wr ||
            sends + limits.receives >= port_.limits.max_cqe || limits.head_bytes > port_.most_inline_bytes)
            fail(errc::resource, -1, -1, "less may be under way at a time, or another device: COLLX_VERBS_DEVICE",
                 "%s: a queue pair of %ld sends and %d receives with heads of %u bytes; the device has at most %d, "
                 "%d in a completion queue, and %u bytes",
                 port_.name, sends, limits.receives, limits.head_bytes, port_.limits.max_qp_wr, port_.limits.max_cqe,
                 port_.most_inline_bytes);
        return make_sole<libibverbs_queue_pair>(port_, domain_.get(), limits);
    }

private:
    verbs_context_handle context_;
    verbs_domain_handle domain_;
    verbs_port port_;
};

struct verbs_device_list {
    int count = 0;
    ibv_device** all = nullptr; // errno says why, when it is null
    verbs_device_list() : all(::ibv_get_device_list(&count)) {}
    verbs_device_list(const verbs_device_list&) = delete;
    ~verbs_device_list() {
        if (all != nullptr) ::ibv_free_device_list(all);
    }
};

// Takes the first active port. False: `no` says why there is none.
inline bool choose_verbs_port(ibv_context* context, const verbs_choice& which, verbs_port& port, verbs_refusal& no) {
    const char* name = ::ibv_get_device_name(context->device);
    if (context->device->transport_type != IBV_TRANSPORT_IB) {
        no.set("InfiniBand and RoCE are served", "%s is neither InfiniBand nor RoCE", name);
        return false;
    }
    if (const int e = ::ibv_query_device(context, &port.limits); e != 0) {
        no.set("is its driver well?", "%s does not say what it can do: %s", name, std::strerror(e));
        return false;
    }
    no.set("COLLX_VERBS_DEVICE=NAME:PORT, from 1", "%s has no port %d but %d", name, which.port,
           port.limits.phys_port_cnt);
    for (int i = 1; i <= port.limits.phys_port_cnt; ++i) {
        if (which.port != 0 && which.port != i) continue;
        const int e = ::ibv_query_port(context, static_cast<std::uint8_t>(i), &port.attributes);
        if (e == 0 && port.attributes.state == IBV_PORT_ACTIVE) {
            port.number = static_cast<unsigned char>(i);
            std::snprintf(port.name, sizeof port.name, "%s port %d", name, i);
            return true;
        }
        no.set("is the cable in and the interface up? On InfiniBand, does a subnet manager run? `rdma link` shows it",
               "%s port %d is not active: %s", name, i,
               e != 0 ? std::strerror(e) : ::ibv_port_state_str(port.attributes.state));
    }
    return false;
}

// Chooses an address of the port, as verbs_choice says. RoCE v2 is preferred: RoCE v1 has entries of the same text and
// is not routed. Link-local addresses (fe80::) come second: they reach no further than the link.
inline bool choose_verbs_address(ibv_context* context, const verbs_choice& which, verbs_port& port, verbs_refusal& no) {
    growing_array<ibv_gid_entry> table(static_cast<std::size_t>(port.attributes.gid_tbl_len) *
                                       port.limits.phys_port_cnt);
    const ssize_t count = ::ibv_query_gid_table(context, table.data(), table.size(), 0);
    int best = -1;
    for (ssize_t i = 0; i < count; ++i) {
        const ibv_gid_entry& e = table[i];
        if (e.port_num != port.number || e.gid_index > 255) continue; // an address handle has 8 bits for it
        if (which.gid_index >= 0 && e.gid_index != static_cast<std::uint32_t>(which.gid_index)) continue;
        const bool is_wanted = which.has_address && std::memcmp(e.gid.raw, which.address, 16) == 0;
        const bool is_local = e.gid.raw[0] == 0xfe && e.gid.raw[1] == 0x80;
        const int worth = 4 * is_wanted + (e.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 + !is_local : 0);
        if (worth <= best) continue;
        best = worth;
        port.gid = e.gid;
        port.gid_index = static_cast<int>(e.gid_index);
        port.link = e.gid_type == IBV_GID_TYPE_ROCE_V2   ? verbs_link::roce_v2
                    : e.gid_type == IBV_GID_TYPE_ROCE_V1 ? verbs_link::roce_v1
                                                         : verbs_link::infiniband;
    }
    if (best < 0 && which.gid_index >= 0)
        no.set("`rdma link` and /sys/class/infiniband/*/ports/*/gids show them; COLLX_VERBS_DEVICE=NAME:PORT:GID_INDEX",
               "%s has no address at index %d", port.name, which.gid_index);
    else if (best < 0)
        no.set("give the interface an IP address", "%s has no address: %s", port.name,
               count < 0 ? std::strerror(static_cast<int>(-count)) : "the table is empty");
    return best >= 0;
}

// How many bytes a send may carry inline. No device reports it, so queue pairs are made on trial.
inline std::uint32_t most_verbs_inline(ibv_pd* domain) {
    const verbs_completions_handle completions(::ibv_create_cq(domain->context, 2, nullptr, nullptr, 0));
    for (std::uint32_t bytes = completions ? 256 : 0; bytes >= 16; bytes /= 2) {
        ibv_qp_init_attr a{};
        a.qp_type = IBV_QPT_RC;
        a.send_cq = a.recv_cq = completions.get();
        a.cap = {1, 1, 1, 1, bytes};
        if (verbs_pair_handle(::ibv_create_qp(domain, &a))) return std::max(bytes, a.cap.max_inline_data);
    }
    return 0;
}

// is_wanted: whether it has the address that is looked for.
inline sole_ptr<verbs_device> open_verbs_device(ibv_device* device, const verbs_choice& which, verbs_refusal& no,
                                                bool& is_wanted) {
    const char* name = ::ibv_get_device_name(device);
    verbs_context_handle context(::ibv_open_device(device));
    if (!context) {
        int e = errno;
        char path[80];
        std::snprintf(path, sizeof path, "/dev/infiniband/%s", device->dev_name);
        if (::access(path, R_OK | W_OK) != 0)
            e = errno; // the library tries other places next, and reports the last error
        no.set("may this user read and write /dev/infiniband? In a container, is that device passed in?",
               "%s cannot be opened by %s: %s", name, path, std::strerror(e));
        return nullptr;
    }
    verbs_port port;
    if (!choose_verbs_port(context.get(), which, port, no) || !choose_verbs_address(context.get(), which, port, no))
        return nullptr;
    verbs_domain_handle domain(::ibv_alloc_pd(context.get()));
    if (domain) port.most_inline_bytes = most_verbs_inline(domain.get());
    if (port.most_inline_bytes == 0) {
        no.set("is the limit of locked memory, `ulimit -l`, high enough?",
               "%s makes no queue pairs of reliable connections that carry data with them: %s", port.name,
               std::strerror(errno));
        return nullptr;
    }
    is_wanted = which.has_address && std::memcmp(port.gid.raw, which.address, 16) == 0;
    return make_sole<libibverbs_device>(std::move(context), std::move(domain), port);
}

// Why the last open_libibverbs() of this thread returned null.
inline thread_local char verbs_reason[400] = "";

inline sole_ptr<verbs_device> open_libibverbs(const verbs_choice& which) {
    // After a fork(), copy-on-write must not move the parent's pages away from the device. Linux ensures this since
    // 5.12. Before, the library must, by hiding registered pages from children, which is not needed where Linux does
    // it. If memory was registered earlier, it comes too late; only programs that fork are affected.
    if (::ibv_is_fork_initialized() != IBV_FORK_UNNEEDED) (void)::ibv_fork_init();
    const verbs_device_list devices;
    verbs_refusal no;
    no.set("does `rdma link` show one? Its modules (ib_uverbs, the driver) must be loaded, its driver for libibverbs "
           "installed (ibverbs-providers), and /dev/infiniband there",
           "there is no RDMA device");
    char names[160] = "";
    sole_ptr<verbs_device> first; // taken if none has the address of the rank's sockets
    for (int i = 0; i < devices.count; ++i) {
        const char* name = ::ibv_get_device_name(devices.all[i]);
        const std::size_t used = std::strlen(names);
        std::snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", name);
        if (which.device != nullptr && std::strcmp(which.device, name) != 0) continue;
        bool is_wanted = false;
        sole_ptr<verbs_device> made = open_verbs_device(devices.all[i], which, no, is_wanted);
        if (made && (is_wanted || !which.has_address || which.device != nullptr)) return made;
        if (made && !first) first = std::move(made);
        if (which.device != nullptr) fail(errc::environment, -1, -1, no.remedy, "%s", no.text);
    }
    if (first) return first;
    if (which.device != nullptr)
        fail(errc::environment, -1, -1,
             devices.count > 0 ? "name one of those in COLLX_VERBS_DEVICE, or none" : no.remedy,
             "there is no RDMA device '%s'; there %s%s", which.device, devices.count > 0 ? "are: " : "is none", names);
    std::snprintf(verbs_reason, sizeof verbs_reason, "%s (%s)", no.text, no.remedy);
    return nullptr;
}

inline constexpr verbs_component verbs_of_libibverbs{"libibverbs", open_libibverbs,
                                                     []() -> const char* { return verbs_reason; }};
inline const bool has_libibverbs = provided(verbs_library, &verbs_of_libibverbs);

} // namespace detail

COLLX_END_NAMESPACE
