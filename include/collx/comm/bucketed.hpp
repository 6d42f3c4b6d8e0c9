// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradient buckets: many tensors are summed over all ranks by few large calls, which start while the backward pass
// still computes. Included by programs that use it.
//
//   collx::bucketed<float> gradients(world, {.average = true});
//   for (layer& l : forward_order) l.number = gradients.add(l.name, l.gradient);
//   gradients.with(collx::progress::thread{});                  // moves them on meanwhile; comm/progress.hpp
//   each step:
//     for (layer& l : backward_order) {
//         l.backward();
//         gradients.ready(l.number);
//     }
//     gradients.finish();                                       // the sums are in the tensors
//
// docs/training.md has the rules, docs/lessons/19_gradient_buckets.md formulas and figures.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <collx/comm/all_reduce.hpp>
#include <collx/comm/all_to_all.hpp>
#include <collx/comm/bound_communicator.hpp>
#include <collx/comm/bucket_options.hpp>
#include <collx/comm/bucket_tensors.hpp>
#include <collx/comm/compare_lists.hpp>
#include <collx/comm/rounded_part.hpp>
#include <collx/comm/split.hpp>
#include <collx/core/descriptor.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {
template <class T>
concept gradient_number = !std::is_integral_v<T> && sizeof(T) <= sizeof(double) && std::is_constructible_v<float, T> &&
                          std::is_constructible_v<T, float>;
} // namespace detail

// Sums tensors over all ranks. T: type of the elements. W: type on the wire; T sums in T. Another type (bf16, f16,
// e4m3, e5m2) is rounded twice: by each rank before it sends its parts, and by the rank that sums a part, in float
// (double for double), in rank order. Types with less range than float are scaled, by a factor for each bucket, rank
// and part. With feedback ranks remember what both roundings took off, so the sum over steps that all ranks get
// differs from the exact one by one step's rounding. All ranks get the same bits. A part that is not finite is NaN.
// Order: buckets are made from the last registered tensor to the first, and go out in that order on all ranks, each
//     when all its tensors and those of the buckets before it are ready. Tensors may become ready in any order.
// Cost of a step, n ranks, N elements: 2(n - 1)/n · N · sizeof(T) bytes sent by each, sizeof(W) with another wire
//     type, in one call per bucket (two); a copy in and out. Without a wire type a bucket is not copied if its tensors
//     lie one behind the other, as registered: one tensor does, and so does a model with one array for all gradients.
// Errors: invalid_argument naming the tensor: registered twice or late, ready twice, not known, another size, memory
//     shared with another, missing in finish() (the other ranks get aborted) · mismatch naming rank and tensor, on all
//     ranks, where registrations differ · what ends a call, with the bucket and its tensors. After errors of calls and
//     finish() it stays ended.
template <class T, class W = T>
class bucketed {
    static_assert(detail::gradient_number<T> && detail::gradient_number<W> && sizeof(W) <= sizeof(T),
                  "collx: gradients are floating-point numbers, and the wire type is a smaller one.");

public:
    // Collective. Makes separate communicators for its calls.
    explicit bucketed(communicator& world, const bucket_options& o = {})
        : options_(checked(world, o)), size_(static_cast<std::size_t>(world.size())), sums_(world.dup()),
          tensors_(world.rank()) {
        if constexpr (has_wire) shares_.emplace(world.dup());
        // Everything in which calls could differ is compared once, with the registrations. Comparing each call would
        // make its start wait for all ranks, although each rank decides for itself when to pass a bucket on.
        sums_.set_checked(false);
        if (shares_) shares_->set_checked(false);
    }
    bucketed(const bucketed&) = delete;

    // Registers a contiguous tensor of T, which stays in place. Before the first ready(), in the same order on all
    // ranks. Returns its number.
    template <HostBuffer X>
    int add(std::string_view name, X&& x) {
        if (!buckets_.empty())
            tensors_.refuse("register all tensors before the first step", "is registered after ready()", name);
        return tensors_.add(name, view_of(x));
    }
    // A gradient is ready. which: the number that add() returned, or the name. The first ready() of all compares the
    // registrations of all ranks, and waits for them.
    template <class Which>
    void ready(const Which& which) {
        make_ready(tensors_.at(which), nullptr);
    }
    // The same for a tensor that lies elsewhere in this step.
    template <class Which, HostBuffer X>
    void ready(const Which& which, X&& x) {
        tensor& t = tensors_.at(which);
        const auto v = view_of(x);
        if (v.size() != t.size) {
            const std::string sizes = std::to_string(t.size) + " elements and has " + std::to_string(v.size());
            tensors_.refuse("make the buckets again", ("was registered with " + sizes).c_str(), t.name);
        }
        make_ready(t, v.data());
    }
    // Waits for all buckets. Then the tensors have the sums, and the next step may begin.
    void finish() {
        if (tensors_.empty()) return compare();
        require_all();
        if (next_ != buckets_.size()) in_bucket(next_, [&] { sums_.internals().require_alive(); }); // it did not go out
        while (passed_ < buckets_.size()) pass_on();
        for (std::size_t k = 0; k < buckets_.size(); ++k)
            in_bucket(k, [&] {
                buckets_[k].under_way->wait();
                unpack(buckets_[k]);
            });
        for (bucket& b : buckets_) {
            b.under_way.reset();
            b.missing = b.tensors.size();
        }
        for (tensor& t : tensors_) t.is_ready = false;
        next_ = passed_ = 0;
        are_at_home_ = true;
    }

    // Applies progress::thread{} or progress::calls{} to the communicators of these calls.
    template <class Policy>
    requires(detail::CommunicatorPolicy<Policy>) void with(const Policy& p) {
        p.apply_to(sums_.internals());
        if (shares_) p.apply_to(shares_->internals());
    }
    // The number of buckets, once the first tensor is ready.
    std::size_t buckets() const { return buckets_.size(); }
    // The number of buckets that this rank copied in and out in the last step that has begun.
    std::size_t copied() const {
        return static_cast<std::size_t>(
            std::count_if(buckets_.begin(), buckets_.end(), [](const bucket& b) { return b.is_copied; }));
    }
    // The messages and bytes that this rank has moved for all buckets so far.
    links::traffic sent() const {
        links::traffic t = sums_.sent();
        if (!shares_) return t;
        return t += shares_->sent();
    }

private:
    static constexpr bool has_wire = !std::is_same_v<T, W>, is_narrow = !has_wire && sizeof(T) < sizeof(float);
    using sum_or_mean = std::conditional_t<is_narrow, collx::average, plus>; // narrow sums may overflow undivided
    using wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    using message = detail::rounded_part<W, wide>;
    using numbers = std::vector<wide>;
    using tensor = typename detail::bucket_tensors<T>::tensor;
    struct bucket {
        std::vector<std::size_t> tensors;    // in the order of registration
        std::size_t size = 0, missing = 0;   // elements of all tensors; tensors that are not ready
        bool is_copied = has_wire;           // in this step
        std::vector<T> flat;                 // the copy, without a wire type
        numbers rest, rest_of_sum;           // rounded off here: in all parts, and in the sum of the own part
        std::vector<std::byte> out, in;      // one message for each rank: a scale and a part
        std::optional<work<void>> under_way; // last, so that it is destroyed before its buffers
    };

    static const bucket_options& checked(const communicator& world, const bucket_options& o) {
        if (o.bytes == 0 || o.first_bytes == 0)
            fail(errc::invalid_argument, world.rank(), -1, "say 1 to 64 MiB", "buckets of no bytes");
        return o;
    }
    template <class X>
    static contiguous_view<T> view_of(X& x) {
        const auto v = buffer(x);
        static_assert(decltype(v)::is_contiguous && std::is_same_v<detail::element_of<decltype(v)>, T>,
                      "collx: buckets take contiguous tensors of their element type, which they may write to.");
        return contiguous_view<T>(v.data(), v.size());
    }
    void make_ready(tensor& t, T* at) { // null: as registered
        if (buckets_.empty()) sums_.internals().or_abandon([&] { make_buckets(); });
        if (t.is_ready) {
            sums_.internals().require_alive(); // or finish() could not end the step before
            if (shares_) shares_->internals().require_alive();
            tensors_.refuse("call finish() between two steps", "is ready twice in a step", t.name);
        }
        t.at = at != nullptr ? at : t.home;
        are_at_home_ &= t.at == t.home;
        require_apart(t);
        t.is_ready = true;
        --buckets_[t.bucket].missing;
        for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_)
            in_bucket(next_, [&] { sums_.internals().or_abandon([&] { launch(buckets_[next_]); }); });
        while (passed_ < next_ && has_come(passed_)) pass_on();
    }
    // Two sums in place of one piece of memory would add each other's results.
    void require_apart(const tensor& t) const {
        if (are_at_home_ && are_homes_apart_) return;
        for (const tensor& other : tensors_)
            if (other.is_ready && t.shares_memory_with(other))
                tensors_.refuse("register memory that several layers share as one tensor",
                                ("shares memory with tensor '" + other.name + "'").c_str(), t.name);
    }
    // Adds the bucket and its tensors to an error that ends a call.
    template <class F>
    void in_bucket(std::size_t k, F&& f) {
        try {
            f();
        } catch (const error& e) {
            std::vector<std::string> its;
            for (const std::size_t i : buckets_[k].tensors) its.push_back(tensors_[i].name);
            fail(e.code(), e.rank(), e.peer(), "is each of them ready on all ranks?", "bucket %zu, tensor(s) %s: %s", k,
                 detail::quoted(its).c_str(), e.what());
        }
    }
    void require_all() {
        std::vector<std::string> missing;
        for (const tensor& t : tensors_)
            if (!t.is_ready) missing.push_back(t.name);
        if (missing.empty()) return;
        sums_.abort(); // the other ranks wait for these tensors
        if (shares_) shares_->abort();
        fail(errc::invalid_argument, sums_.rank(), -1, "call ready() of each tensor in each step",
             "finish(), and %zu tensor(s) are not ready: %s", missing.size(), detail::quoted(missing).c_str());
    }

    // ------------------------------------------------------------------ once
    void make_buckets() {
        compare();
        decltype(buckets_) made; // memory may run out
        for (std::size_t i = tensors_.size(); i-- > 0;) {
            const std::size_t limit =
                made.size() <= 1 ? std::min(options_.first_bytes, options_.bytes) : options_.bytes;
            if (made.empty() || made.back().size * sizeof(T) >= limit) made.emplace_back();
            bucket& b = made.back();
            b.tensors.push_back(i);
            b.size += tensors_[i].size;
            ++b.missing;
            tensors_[i].bucket = made.size() - 1;
        }
        std::vector<std::pair<const T*, const T*>> homes;
        for (const tensor& t : tensors_)
            if (t.size != 0) homes.emplace_back(t.home, t.home + t.size);
        std::sort(homes.begin(), homes.end());
        are_homes_apart_ = std::adjacent_find(homes.begin(), homes.end(), [](const auto& a, const auto& b) {
                               return b.first < a.second;
                           }) == homes.end();
        for (bucket& b : made) {
            std::reverse(b.tensors.begin(), b.tensors.end());
            if constexpr (has_wire) {
                b.rest.assign(b.size, 0);
                b.rest_of_sum.assign(part_size(b), 0);
                b.out.resize(size_ * stride(b));
                b.in.resize(size_ * stride(b));
            }
        }
        buckets_.swap(made);
    }
    static std::uint64_t hash_of(std::string_view text, std::uint64_t number) {
        return detail::hash_bytes(text.data(), text.size(), number + 1);
    }
    // Compares what all ranks have registered. If it differs, all ranks learn the first tensor that differs.
    void compare() {
        if (is_compared_) return;
        const std::uint64_t how[] = {
            options_.bytes, options_.first_bytes, options_.feedback, options_.average, sizeof(T), sizeof(W)};
        std::vector<std::uint64_t> mine;
        for (const tensor& t : tensors_) mine.push_back(hash_of(t.name, t.size));
        mine.push_back(hash_of({reinterpret_cast<const char*>(how), sizeof how}, 0));
        const detail::list_difference d = detail::compare_lists(sums_, mine);
        if (d.rank >= 0) report_difference(d);
        is_compared_ = !tensors_.empty(); // later tensors are compared, too
    }
    [[noreturn]] void report_difference(const detail::list_difference& d) const {
        std::string here = d.is_last_of_both ? "the options, or the types" : "no tensor"; // these stand at the end
        if (!tensors_.empty() && !d.is_last_of_both) {
            const tensor& t = d.at < tensors_.size() ? tensors_[d.at] : tensors_[tensors_.size() - 1];
            here = (d.at < tensors_.size() ? "'" : "the end, after '") + t.name + "' of " + std::to_string(t.size) +
                   " elements";
        }
        fail(errc::mismatch, sums_.rank(), d.rank, "register the same tensors in the same order with the same options",
             "the buckets of rank %d differ from those of rank %d, first in number %zu: here %s", d.rank, d.other, d.at,
             here.c_str());
    }

    // ------------------------------------------------------------------ each step
    // Calls f(tensor, its first element in the bucket) for each tensor.
    template <class F>
    void each(const bucket& b, F&& f) {
        std::size_t at = 0;
        for (const std::size_t i : b.tensors) {
            f(tensors_[i], at);
            at += tensors_[i].size;
        }
    }
    void launch(bucket& b) {
        if constexpr (has_wire) {
            each(b, [&](const tensor& t, std::size_t at) {
                for (std::size_t i = 0; i < t.size; ++i)
                    b.rest[at + i] = static_cast<wide>(t.at[i]) + (options_.feedback ? b.rest[at + i] : wide(0));
            });
            for (std::size_t r = 0; r < size_; ++r)
                message::round(b.rest.data() + first(b, r), count(b, r), place(b, b.out, r));
            b.under_way.emplace(async::all_to_all(sums_, b.out, b.in, {.timeout = options_.timeout}));
        } else {
            T* there = in_one_piece(b);
            b.is_copied = there == nullptr && b.size > 0;
            if (b.is_copied) {
                b.flat.resize(b.size); // in the first step
                each(b, [&](const tensor& t, std::size_t at) { std::copy_n(t.at, t.size, b.flat.data() + at); });
                there = b.flat.data();
            }
            const contiguous_view<T> whole(there, b.size);
            const call_options o{.timeout = options_.timeout};
            if (!options_.average) b.under_way.emplace(async::all_reduce(sums_, whole, plus{}, o));
            else b.under_way.emplace(async::all_reduce(sums_, whole, sum_or_mean{}, o));
        }
    }
    // A bucket's elements in place, if they lie one behind the other. Each rank decides alone: the call is the same.
    T* in_one_piece(const bucket& b) {
        T* begin = nullptr;
        bool is_one = true;
        each(b, [&](const tensor& t, std::size_t at) {
            if (t.size == 0) return;
            if (at == 0) begin = t.at;
            is_one &= t.at == begin + at;
        });
        return is_one ? begin : nullptr;
    }
    bool has_come(std::size_t k) {
        bool is_done = !has_wire;
        if constexpr (has_wire) in_bucket(k, [&] { is_done = buckets_[k].under_way->test(); });
        return is_done;
    }
    // With a wire type, sums the own part of the next bucket and sends it to all.
    void pass_on() {
        if constexpr (has_wire)
            in_bucket(passed_, [&] {
                bucket& b = buckets_[passed_];
                b.under_way->wait();
                const auto me = static_cast<std::size_t>(sums_.rank());
                if (!options_.feedback) std::fill(b.rest_of_sum.begin(), b.rest_of_sum.end(), wide(0));
                for (std::size_t r = 0; r < size_; ++r)
                    message::read(place(b, b.in, r), count(b, me),
                                  [&](std::size_t i, wide v) { b.rest_of_sum[i] += v; });
                message::round(b.rest_of_sum.data(), count(b, me), b.out.data());
                const contiguous_view<const std::byte> own(b.out.data(), stride(b));
                b.under_way.emplace(async::all_gather(*shares_, own, b.in, {.timeout = options_.timeout}));
            });
        ++passed_;
    }
    void unpack(bucket& b) {
        const wide factor = options_.average && !is_narrow ? wide(1) / static_cast<wide>(size_) : wide(1);
        if constexpr (has_wire) {
            scratch_.resize(b.size);
            for (std::size_t r = 0; r < size_; ++r)
                message::read(place(b, b.in, r), count(b, r),
                              [&](std::size_t i, wide v) { scratch_[first(b, r) + i] = v; });
        }
        each(b, [&](const tensor& t, std::size_t at) {
            if constexpr (has_wire) {
                for (std::size_t i = 0; i < t.size; ++i) t.at[i] = static_cast<T>(scratch_[at + i] * factor);
            } else {
                const T* from = b.is_copied ? b.flat.data() + at : t.at;
                if (factor != wide(1))
                    for (std::size_t i = 0; i < t.size; ++i)
                        t.at[i] = static_cast<T>(static_cast<wide>(from[i]) * factor);
                else if (from != t.at) std::copy_n(from, t.size, t.at);
            }
        });
    }

    // ------------------------------------------------------------------ on the wire: a message for each part
    std::size_t part_size(const bucket& b) const { return (b.size + size_ - 1) / size_; }
    std::size_t first(const bucket& b, std::size_t r) const { return std::min(b.size, r * part_size(b)); }
    std::size_t count(const bucket& b, std::size_t r) const { return first(b, r + 1) - first(b, r); }
    std::size_t stride(const bucket& b) const { return message::bytes(part_size(b)); }
    std::byte* place(const bucket& b, std::vector<std::byte>& all, std::size_t r) const {
        return all.data() + r * stride(b);
    }

    const bucket_options options_;
    const std::size_t size_;
    communicator sums_;
    std::optional<communicator> shares_; // for the second half of a sum with a wire type
    detail::bucket_tensors<T> tensors_;
    std::vector<bucket> buckets_;       // in the order in which they go; empty before the first ready()
    bool is_compared_ = false;          // the registrations
    bool are_homes_apart_ = true;       // no two tensors share memory where they were registered
    bool are_at_home_ = true;           // so far in this step
    std::size_t next_ = 0, passed_ = 0; // buckets that went out, and those whose second half did
    numbers scratch_;
};

COLLX_END_NAMESPACE
