// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory and queue pairs of libibverbs, for transport/verbs_device.hpp: the reliable-connection service, and a
// separate completion queue for each queue pair. libibverbs.hpp, which programs include, chooses the device and the
// port.
// collx-header: needs=verbs
#pragma once

#include <infiniband/verbs.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <collx/core/error.hpp>
#include <collx/core/growing_array.hpp>
#include <collx/transport/verbs_device.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Owns an object of the library, except in a child of fork(): the child shares the parent's device file, and would
// destroy what the parent uses.
template <class T, int (*Close)(T*)>
class verbs_handle {
public:
    explicit verbs_handle(T* p = nullptr) : p_(p), owner_(::getpid()) {}
    verbs_handle(verbs_handle&& o) noexcept : p_(std::exchange(o.p_, nullptr)), owner_(o.owner_) {}
    verbs_handle& operator=(verbs_handle&&) = delete;
    ~verbs_handle() {
        if (p_ != nullptr && owner_ == ::getpid()) (void)Close(p_);
    }
    T* get() const { return p_; }
    T* operator->() const { return p_; }
    explicit operator bool() const { return p_ != nullptr; }

private:
    T* p_;
    pid_t owner_;
};
using verbs_completions_handle = verbs_handle<ibv_cq, ibv_destroy_cq>;
using verbs_pair_handle = verbs_handle<ibv_qp, ibv_destroy_qp>;
using verbs_region_handle = verbs_handle<ibv_mr, ibv_dereg_mr>;

// The port of a device that this rank uses.
struct verbs_port {
    char name[96] = "";
    ibv_device_attr limits = {};
    ibv_port_attr attributes = {};
    ibv_gid gid = {};
    int gid_index = 0;
    unsigned char number = 0;
    verbs_link link = verbs_link::infiniband;
    std::uint32_t most_inline_bytes = 0;
};

[[noreturn, gnu::cold]] inline void fail_verbs_limit(const verbs_port& port, const char* what, std::size_t bytes,
                                                     int e) {
    rlimit locked{};
    (void)::getrlimit(RLIMIT_MEMLOCK, &locked);
    char limit[32] = "unlimited";
    if (locked.rlim_cur != RLIM_INFINITY)
        std::snprintf(limit, sizeof limit, "%llu KiB", static_cast<unsigned long long>(locked.rlim_cur) / 1024);
    fail(errc::resource, -1, -1,
         e == EFAULT || e == EACCES ? "the memory must be readable and writable"
                                    : "raise the limit of locked memory, `ulimit -l` (limits.conf, LimitMEMLOCK=, "
                                      "--ulimit memlock=-1), if it is not the device's own limit",
         "%s: no %s of %zu bytes: %s; locked memory: %s", port.name, what, bytes, std::strerror(e), limit);
}

class libibverbs_memory final : public verbs_memory {
public:
    explicit libibverbs_memory(verbs_region_handle region) : region_(std::move(region)) {
        local_key = region_->lkey;
        remote_key = region_->rkey;
    }

private:
    verbs_region_handle region_;
};

// Used by one thread at a time.
class libibverbs_queue_pair final : public queue_pair {
public:
    libibverbs_queue_pair(const verbs_port& port, ibv_pd* domain, const verbs_limits& limits)
        : port_(&port), limits_(limits), depth_(limits.sends + limits.writes + limits.transfers),
          completions_(::ibv_create_cq(domain->context, depth_ + limits.receives + 1, nullptr, nullptr, 0)),
          pair_(make(domain)), requests_(static_cast<std::size_t>(depth_)), pieces_(requests_.size()),
          signalled_(requests_.size()) {
        if (::getrandom(&first_packet_, sizeof first_packet_, 0) < 0) first_packet_ = pair_->qp_num * 2654435761U;
        first_packet_ &= 0xffffff;
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = port.number;
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        change(a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "be used");
    }

    queue_pair_address address() const override {
        queue_pair_address a;
        std::memcpy(a.gid, port_->gid.raw, sizeof a.gid);
        a.number = pair_->qp_num;
        a.first_packet = first_packet_;
        a.lid = port_->attributes.lid;
        a.mtu_bytes = static_cast<std::uint16_t>(128 << port_->attributes.active_mtu);
        a.link = port_->link;
        return a;
    }

    void connect(const queue_pair_address& peer) override {
        const std::uint32_t mtu = std::min(peer.mtu_bytes, address().mtu_bytes);
        if (mtu < 256 || (mtu & (mtu - 1)) != 0 || peer.number > 0xffffff || peer.first_packet > 0xffffff)
            fail(errc::environment, -1, -1, "are all ranks of the same version?",
                 "%s: a peer's address is none of a queue pair", port_->name);
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        for (a.path_mtu = IBV_MTU_256; (128U << a.path_mtu) < mtu;) a.path_mtu = static_cast<ibv_mtu>(a.path_mtu + 1);
        a.dest_qp_num = peer.number;
        a.rq_psn = peer.first_packet;
        a.max_dest_rd_atomic = 1;
        // The delay after which a peer sends a head again that found no posted receive. The credits of collx prevent
        // that, so only some slack is needed: 6 times (7 would mean for ever) 10 ms, which has the code 20.
        a.min_rnr_timer = 20;
        a.ah_attr.port_num = port_->number;
        a.ah_attr.dlid = peer.lid;
        // Inside an InfiniBand subnet the LID is enough, except for ports that say otherwise (virtual functions).
        a.ah_attr.is_global = port_->link != verbs_link::infiniband ||
                              (port_->attributes.flags & IBV_QPF_GRH_REQUIRED) != 0 ||
                              std::memcmp(peer.gid, port_->gid.raw, 8) != 0;
        std::memcpy(a.ah_attr.grh.dgid.raw, peer.gid, sizeof peer.gid);
        a.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port_->gid_index);
        a.ah_attr.grh.hop_limit = 64; // RoCE v2 may be routed
        change(a,
               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
               "reach its peer", &peer);
        a = {};
        a.qp_state = IBV_QPS_RTS;
        a.sq_psn = first_packet_;
        a.max_rd_atomic = 1;
        // A packet is sent again after 4.096 us * 2^16 = 0.27 s, 6 times: a dead peer is noticed after 1.9 s (a device
        // may take up to four times as long), and a link that comes back within a second breaks no connection. 7 would
        // be seven times, but for ever with soft-RoCE.
        a.timeout = 16;
        a.retry_cnt = 6;
        a.rnr_retry = 6;
        change(a,
               IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                   IBV_QP_RNR_RETRY,
               "send", &peer);
    }

    void post_receive(std::byte* at, std::uint32_t bytes, std::uint32_t local_key, std::uint64_t id) override {
        ibv_sge piece{reinterpret_cast<std::uintptr_t>(at), bytes, local_key};
        ibv_recv_wr request{};
        ibv_recv_wr* bad = nullptr;
        request.wr_id = id;
        request.sg_list = &piece;
        request.num_sge = 1;
        const int e = ::ibv_post_recv(pair_.get(), &request, &bad);
        if (e != 0) stop(id, e == ENOMEM ? "ibv_post_recv: the queue is full" : "ibv_post_recv failed");
    }

    bool post(const verbs_write* writes, int count, const void* head, std::uint32_t head_bytes,
              std::uint64_t id) override {
        const bool has_head = head_bytes != 0;
        const int all = count + has_head;
        if (has_failed_) return false;
        if (all == 0) return true;
        if (under_way_ + all > depth_ || head_bytes > limits_.head_bytes)
            fail(errc::resource, -1, -1, "this is a mistake in collx",
                 "%s: %d writes and a head of %u bytes behind %d others, in a queue for %d and heads of %u",
                 port_->name, count, head_bytes, under_way_, depth_, limits_.head_bytes);
        for (int i = 0; i < all; ++i) {
            ibv_send_wr& r = requests_[i] = {};
            ibv_sge& piece = pieces_[i];
            r.wr_id = id;
            r.sg_list = &piece;
            r.next = i + 1 < all ? &r + 1 : nullptr;
            if (i < count) {
                const verbs_write& w = writes[i];
                piece = {reinterpret_cast<std::uintptr_t>(w.from), w.bytes, w.local_key};
                r.num_sge = w.bytes != 0; // some devices read a size of 0 as 2 GiB
                r.opcode = IBV_WR_RDMA_WRITE;
                r.wr.rdma.remote_addr = w.to;
                r.wr.rdma.rkey = w.remote_key;
            } else {
                piece = {reinterpret_cast<std::uintptr_t>(head), head_bytes, 0};
                r.num_sge = 1;
                r.opcode = IBV_WR_SEND;
                r.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
            }
        }
        // Only a completion behind them frees places of the queue, so posts without heads ask for one now and then.
        const bool is_own = !has_head && 2 * (unsignalled_ + all) > depth_;
        if (is_own) requests_[all - 1].send_flags = IBV_SEND_SIGNALED;
        return start(all, has_head || is_own, is_own, id);
    }

    bool post_alone(const verbs_transfer& what, std::uint64_t id) override {
        if (has_failed_) return false;
        if (under_way_ + 1 > depth_)
            fail(errc::resource, -1, -1, "this is a mistake in collx",
                 "%s: a transfer behind %d posts, in a queue for %d", port_->name, under_way_, depth_);
        ibv_send_wr& r = requests_[0] = {};
        pieces_[0] = {reinterpret_cast<std::uintptr_t>(what.here), what.bytes, what.local_key};
        r.wr_id = id;
        r.sg_list = &pieces_[0];
        r.num_sge = 1;
        r.opcode = what.is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        r.send_flags = IBV_SEND_SIGNALED;
        r.wr.rdma.remote_addr = what.there;
        r.wr.rdma.rkey = what.remote_key;
        return start(1, true, false, id);
    }

    int poll(verbs_completion* to, int most) override {
        int n = 0;
        if (refusal_ != nullptr && most > 0)
            to[n++] = {verbs_completion::kind::failed, refused_id_, 0, std::exchange(refusal_, nullptr)};
        while (n < most) {
            ibv_wc batch[16];
            const int wanted = std::min(most - n, 16);
            const int got = ::ibv_poll_cq(completions_.get(), wanted, batch);
            if (got < 0) {
                has_failed_ = true;
                to[n++] = {verbs_completion::kind::failed, 0, 0, "ibv_poll_cq failed"};
                break;
            }
            for (int i = 0; i < got; ++i) n += take(batch[i], to[n]);
            if (got < wanted) break;
        }
        return n;
    }

private:
    // A completion to come: the number of requests it frees, and whether it is for this queue, not for the caller.
    struct signal {
        int requests = 0;
        bool is_own = false;
    };

    // Posts the first `all` requests_. is_signalled: the last one completes; is_own: for this queue only.
    bool start(int all, bool is_signalled, bool is_own, std::uint64_t id) {
        unsignalled_ += all;
        if (is_signalled) {
            signalled_[(first_signalled_ + signalled_count_++) % signalled_.size()] = {unsignalled_, is_own};
            unsignalled_ = 0;
        }
        under_way_ += all;
        ibv_send_wr* bad = nullptr;
        const int e = ::ibv_post_send(pair_.get(), requests_.data(), &bad);
        if (e != 0) stop(id, e == ENOMEM ? "ibv_post_send: the queue is full" : "ibv_post_send failed");
        return e == 0;
    }

    ibv_qp* make(ibv_pd* domain) const {
        const auto bytes = static_cast<std::size_t>(depth_ + limits_.receives) * 64; // about
        if (!completions_) fail_verbs_limit(*port_, "completion queue", bytes, errno);
        ibv_qp_init_attr a{};
        a.qp_type = IBV_QPT_RC;
        a.send_cq = a.recv_cq = completions_.get();
        a.cap.max_send_wr = static_cast<std::uint32_t>(depth_);
        a.cap.max_recv_wr = static_cast<std::uint32_t>(limits_.receives);
        a.cap.max_send_sge = a.cap.max_recv_sge = 1;
        a.cap.max_inline_data = limits_.head_bytes;
        ibv_qp* made = ::ibv_create_qp(domain, &a);
        if (made == nullptr) fail_verbs_limit(*port_, "queue pair", bytes, errno);
        return made;
    }

    void change(ibv_qp_attr& to, int mask, const char* what, const queue_pair_address* peer = nullptr) {
        const int e = ::ibv_modify_qp(pair_.get(), &to, mask);
        if (e == 0) return;
        char gid[40] = "";
        for (int i = 0; peer != nullptr && i < 16; i += 2)
            std::snprintf(gid + (i > 0 ? i / 2 * 5 - 1 : 0), 6, "%s%02x%02x", i > 0 ? ":" : "", peer->gid[i],
                          peer->gid[i + 1]);
        fail(errc::environment, -1, -1,
             "do both ports belong to one network, with a route between their addresses? `rdma link`, `ip route get`; "
             "another address: COLLX_VERBS_DEVICE=NAME:PORT:GID_INDEX",
             "%s: a queue pair cannot %s%s%s: %s", port_->name, what, peer != nullptr ? " " : "", gid,
             std::strerror(e));
    }

    // The next poll() reports it. Requests under way end, too; whether they have arrived is unknown.
    [[gnu::cold]] void stop(std::uint64_t id, const char* why) {
        if (has_failed_) return;
        has_failed_ = true;
        refusal_ = why;
        refused_id_ = id;
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_ERR;
        (void)::ibv_modify_qp(pair_.get(), &a, IBV_QP_STATE);
    }

    // Returns 1 if the completion is for the caller, else 0.
    int take(const ibv_wc& from, verbs_completion& to) {
        if (from.status != IBV_WC_SUCCESS) {
            has_failed_ = true;
            to = {verbs_completion::kind::failed, from.wr_id, 0, ::ibv_wc_status_str(from.status)};
            return 1;
        }
        if ((from.opcode & IBV_WC_RECV) != 0) {
            to = {verbs_completion::kind::received, from.wr_id, from.byte_len, nullptr};
            return 1;
        }
        const signal s = signalled_[first_signalled_];
        first_signalled_ = (first_signalled_ + 1) % signalled_.size();
        --signalled_count_;
        under_way_ -= s.requests;
        if (s.is_own) return 0;
        to = {verbs_completion::kind::sent, from.wr_id, 0, nullptr};
        return 1;
    }

    const verbs_port* port_;
    verbs_limits limits_;
    int depth_; // of the send queue
    verbs_completions_handle completions_;
    verbs_pair_handle pair_;
    growing_array<ibv_send_wr> requests_; // of one post
    growing_array<ibv_sge> pieces_;
    growing_array<signal> signalled_; // a ring: the completions that will come
    std::size_t first_signalled_ = 0, signalled_count_ = 0;
    int under_way_ = 0, unsignalled_ = 0;
    std::uint32_t first_packet_ = 0;
    const char* refusal_ = nullptr;
    std::uint64_t refused_id_ = 0;
    bool has_failed_ = false;
};

} // namespace detail

COLLX_END_NAMESPACE
