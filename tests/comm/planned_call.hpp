// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One call of any verb with numbers that every rank makes from a seed, and what each rank must get: for programs in
// which many calls are under way. The same call can be made at once, started, made persistent, or added to a group.
#pragma once

#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>

#include "support.hpp"

namespace collx_test {

// A number that all ranks make alike.
inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
    std::uint64_t x = a * 0x9e37'79b9'7f4a'7c15 + b * 0xbf58'476d'1ce4'e5b9 + c * 0x94d0'49bb'1331'11eb + 1;
    for (int k = 0; k < 2; ++k) x = (x ^ x >> 31) * 0x7fb5'd329'728e'a185;
    return x ^ x >> 29;
}
struct dice {
    std::uint64_t seed, thrown = 0;
    std::size_t below(std::size_t n) { return mixed(seed, ++thrown) % n; }
    bool one_in(std::size_t n) { return below(n) == 0; }
};

// x -> a * x + b modulo 2^32. Combining two of them does not commute.
struct affine {
    std::uint32_t a = 0, b = 0;
    bool operator==(const affine&) const = default;
};
struct then {
    affine operator()(const affine& f, const affine& g) const { return {g.a * f.a, g.a * f.b + g.b}; }
};
template <class T>
T number(std::uint64_t seed, int rank, std::size_t i) {
    const std::uint64_t x = mixed(seed, static_cast<std::uint64_t>(rank), i);
    if constexpr (std::is_same_v<T, affine>)
        return {static_cast<std::uint32_t>(x) | 1, static_cast<std::uint32_t>(x >> 32)};
    else return static_cast<T>(x % 1000);
}

// The ways to make a call, with one member for each verb, on host or device memory.
#define COLLX_TEST_VERB(name, space) \
    template <class... A>            \
    auto name(A&&... a) {            \
        return space::name(c, a...); \
    }
#define COLLX_TEST_WAY(way, space)                             \
    template <class Comm, class Options = collx::call_options> \
    struct way {                                               \
        Comm& c;                                               \
        Options of_all = {};                                   \
        Options options(int root = 0) const {                  \
            Options o = of_all;                                \
            o.root = root;                                     \
            return o;                                          \
        }                                                      \
        COLLX_TEST_VERB(all_reduce, space)                     \
        COLLX_TEST_VERB(reduce, space)                         \
        COLLX_TEST_VERB(broadcast, space)                      \
        COLLX_TEST_VERB(scan, space)                           \
        COLLX_TEST_VERB(exclusive_scan, space)                 \
        COLLX_TEST_VERB(all_gather, space)                     \
        COLLX_TEST_VERB(reduce_scatter, space)                 \
        COLLX_TEST_VERB(gather, space)                         \
        COLLX_TEST_VERB(scatter, space)                        \
        COLLX_TEST_VERB(all_to_all, space)                     \
        COLLX_TEST_VERB(all_gather_v, space)                   \
        COLLX_TEST_VERB(reduce_scatter_v, space)               \
        COLLX_TEST_VERB(gather_v, space)                       \
        COLLX_TEST_VERB(scatter_v, space)                      \
        COLLX_TEST_VERB(all_to_all_v, space)                   \
        COLLX_TEST_VERB(sendrecv, space)                       \
        COLLX_TEST_VERB(neighbor_all_to_all_v, space)          \
        COLLX_TEST_VERB(barrier, space)                        \
    };
COLLX_TEST_WAY(at_once, collx)
COLLX_TEST_WAY(started, collx::async)
COLLX_TEST_WAY(made_ready, collx::persistent)
#undef COLLX_TEST_WAY
#undef COLLX_TEST_VERB

class planned_call {
public:
    using bound = collx::bound_communicator<collx::piece>;

    virtual ~planned_call() = default;
    // Puts the numbers of this seed into the input, and marks into the output.
    virtual void fill(std::uint64_t seed) = 0;
    virtual void make(collx::communicator& c) = 0;
    virtual void make(bound& c) = 0;
    virtual collx::work<void> start(collx::communicator& c) = 0;
    virtual collx::persistent_call make_ready(collx::communicator& c) = 0;
    // False: a group has no such call. Before fill().
    virtual bool add_to(collx::group& g) = 0;
    virtual bool add_to(collx::persistent::group& g) = 0;
    virtual void check(const collx::communicator& w) const = 0;

    std::string text;
};

// What a rank passes, and must get, for any size of the parts.
class planned_shape {
public:
    enum verb {
        all_reduce,
        reduce,
        broadcast,
        scan,
        exclusive_scan,
        all_gather,
        reduce_scatter,
        gather,
        scatter,
        all_to_all,
        all_gather_v,
        reduce_scatter_v,
        gather_v,
        scatter_v,
        all_to_all_v,
        shift,
        neighbours,
        barrier,
        verbs
    };
    using counts = std::vector<std::size_t>;

    planned_shape(verb v, int ranks, int rank, std::size_t elems, std::uint64_t s)
        : what(v), n(ranks), me(rank), root(static_cast<int>(mixed(s, 9) % static_cast<unsigned>(ranks))), count(elems),
          seed(s) {
        for (int r = 0; r < n; ++r) {
            if (is_edge(me, r)) graph.destinations.push_back(r);
            if (is_edge(r, me)) graph.sources.push_back(r);
        }
    }

    // Elements of rank r's part, and of what r sends s. A third of them are empty.
    std::size_t part(int r) const { return perhaps(1, r, 0); }
    std::size_t part(int r, int s) const { return perhaps(2, r, s); }
    counts parts() const {
        return each([&](int r) { return part(r); });
    }
    counts sent() const {
        return each([&](int r) { return part(me, r); });
    }
    counts received() const {
        return each([&](int r) { return part(r, me); });
    }
    counts sent_along() const {
        return each([&](int r) { return part(me, r); }, graph.destinations);
    }
    counts received_along() const {
        return each([&](int r) { return part(r, me); }, graph.sources);
    }
    bool is_edge(int from, int to) const { return mixed(seed, 50, static_cast<unsigned>(from * 100 + to)) % 3 == 0; }
    static std::size_t sum(const counts& c) { return std::accumulate(c.begin(), c.end(), std::size_t{0}); }
    // Elements before rank r's part, and before what r sends this rank.
    std::size_t before(int r) const {
        const counts c = parts();
        return sum(counts(c.begin(), c.begin() + r));
    }
    std::size_t before_mine(int r, bool along_edges) const {
        std::size_t s = 0;
        for (int k = 0; k < me; ++k)
            if (!along_edges || is_edge(r, k)) s += part(r, k);
        return s;
    }
    std::pair<std::size_t, std::size_t> sizes() const { // of input and output
        const std::size_t all = static_cast<std::size_t>(n) * count;
        switch (what) {
            case all_gather:
            case gather: return {count, all};
            case reduce_scatter:
            case scatter: return {all, count};
            case all_to_all: return {all, all};
            case all_gather_v:
            case gather_v: return {part(me), sum(parts())};
            case reduce_scatter_v:
            case scatter_v: return {sum(parts()), part(me)};
            case all_to_all_v: return {sum(sent()), sum(received())};
            case neighbours: return {sum(sent_along()), sum(received_along())};
            case barrier: return {0, 0};
            default: return {count, count};
        }
    }
    int next() const { return (me + 1) % n; }
    int previous() const { return (me + n - 1) % n; }

    verb what;
    int n, me, root;
    std::size_t count;
    std::uint64_t seed;
    collx::neighbors graph;

private:
    std::size_t perhaps(unsigned kind, int r, int s) const {
        const std::uint64_t x = mixed(seed, kind, static_cast<unsigned>(r * 1000 + s));
        return x % 3 == 0 ? 0 : (x >> 8) % (count + 1);
    }
    template <class F>
    counts each(F&& f) const {
        counts c;
        for (int r = 0; r < n; ++r) c.push_back(f(r));
        return c;
    }
    template <class F, class Ranks>
    static counts each(F&& f, const Ranks& ranks) {
        counts c;
        for (const int r : ranks) c.push_back(f(r));
        return c;
    }
};

// Its numbers, and the verbs on buffers of any kind.
template <class T, class Op>
class planned_numbers {
    using shape = planned_shape;

public:
    planned_numbers(const shape& s, bool in_place) : is_(s), in_(s.sizes().first), out_(s.sizes().second) {
        const auto v = s.what;
        in_place_ = v == shape::broadcast || (in_place && (v == shape::all_reduce || v == shape::scan));
        text_ = "verb " + std::to_string(v) + " of " + std::to_string(s.count) + " x " + std::to_string(sizeof(T)) +
                " bytes, rank " + std::to_string(s.me) + " of " + std::to_string(s.n) + ", root " +
                std::to_string(s.root) + (in_place_ ? ", in place" : "");
    }

    void fill(std::uint64_t seed) {
        seed_ = seed;
        for (std::size_t i = 0; i < in_.size(); ++i) in_[i] = x(is_.me, i);
        for (std::size_t i = 0; i < out_.size(); ++i) out_[i] = mark(i);
        if (in_place_ && (is_.what != shape::broadcast || is_.me == is_.root)) out_ = in_;
    }
    void check(const collx::communicator& w) const {
        at("%s", text_.c_str());
        std::size_t k = 0; // in the output
        const auto run = [&](std::size_t size, auto&& f) {
            for (std::size_t i = 0; i < size; ++i, ++k) EXPECT_AT(k, k < out_.size() && out_[k] == f(i));
        };
        if (!has_result()) {
            if (!in_place_) run(out_.size(), [&](std::size_t i) { return mark(i); });
        } else if (is_.what <= shape::exclusive_scan || is_.what == shape::shift) {
            run(is_.count, [&](std::size_t i) { return element(i); });
        } else if (is_.what == shape::reduce_scatter || is_.what == shape::reduce_scatter_v) {
            run(out_.size(), [&](std::size_t i) { return folded(own_begin() + i, is_.n); });
        } else if (is_.what == shape::scatter || is_.what == shape::scatter_v) {
            run(out_.size(), [&](std::size_t i) { return x(is_.root, own_begin() + i); });
        } else if (is_.what != shape::barrier) {
            for (int r = 0; r < is_.n; ++r) {
                const std::pair<std::size_t, std::size_t> its = from(r); // size and place
                run(its.first, [&](std::size_t i) { return x(r, its.second + i); });
            }
        }
        EXPECT(k == out_.size() || (in_place_ && !has_result()));
        for (std::size_t i = 0; i < in_.size(); ++i) EXPECT_AT(i, in_[i] == x(is_.me, i));
    }

private:
    static T mark(std::size_t i) {
        if constexpr (std::is_same_v<T, affine>) return {8, static_cast<std::uint32_t>(i)};
        else return static_cast<T>(2000 + i % 50);
    }
    T x(int r, std::size_t i) const { return number<T>(seed_, r, i); }
    T folded(std::size_t i, int last) const {
        T a = x(0, i);
        for (int r = 1; r < last; ++r) a = op_(a, x(r, i));
        return a;
    }
    bool has_result() const {
        switch (is_.what) {
            case shape::reduce:
            case shape::gather:
            case shape::gather_v: return is_.me == is_.root;
            case shape::exclusive_scan: return is_.me != 0;
            default: return true;
        }
    }
    // Element i of a result as long as each rank's input.
    T element(std::size_t i) const {
        switch (is_.what) {
            case shape::broadcast: return x(is_.root, i);
            case shape::scan: return folded(i, is_.me + 1);
            case shape::exclusive_scan: return folded(i, is_.me);
            case shape::shift: return x(is_.previous(), i);
            default: return folded(i, is_.n);
        }
    }
    // Where this rank's part begins in what is scattered.
    std::size_t own_begin() const {
        const bool is_even = is_.what == shape::reduce_scatter || is_.what == shape::scatter;
        return is_even ? static_cast<std::size_t>(is_.me) * is_.count : is_.before(is_.me);
    }
    // What rank r contributes to an output of parts: the size, and where it begins in r's input.
    std::pair<std::size_t, std::size_t> from(int r) const {
        switch (is_.what) {
            case shape::all_to_all: return {is_.count, static_cast<std::size_t>(is_.me) * is_.count};
            case shape::all_gather_v:
            case shape::gather_v: return {is_.part(r), 0};
            case shape::all_to_all_v: return {is_.part(r, is_.me), is_.before_mine(r, false)};
            case shape::neighbours: return {is_.is_edge(r, is_.me) ? is_.part(r, is_.me) : 0, is_.before_mine(r, true)};
            default: return {is_.count, 0};
        }
    }

protected:
    template <class Way, class In, class Out>
    auto call(Way c, In& in, Out& out) {
        const auto o = c.options(), rooted = c.options(is_.root);
        switch (is_.what) {
            case shape::all_reduce: return in_place_ ? c.all_reduce(out, op_, o) : c.all_reduce(in, out, op_, o);
            case shape::reduce: return c.reduce(in, out, op_, rooted);
            case shape::broadcast: return c.broadcast(out, rooted);
            case shape::scan: return in_place_ ? c.scan(out, op_, o) : c.scan(in, out, op_, o);
            case shape::exclusive_scan: return c.exclusive_scan(in, out, op_, o);
            case shape::all_gather: return c.all_gather(in, out, o);
            case shape::reduce_scatter: return c.reduce_scatter(in, out, op_, o);
            case shape::gather: return c.gather(in, out, rooted);
            case shape::scatter: return c.scatter(in, out, rooted);
            case shape::all_to_all: return c.all_to_all(in, out, o);
            case shape::all_gather_v: return c.all_gather_v(in, out, is_.parts(), o);
            case shape::reduce_scatter_v: return c.reduce_scatter_v(in, out, is_.parts(), op_, o);
            case shape::gather_v: return c.gather_v(in, out, is_.parts(), rooted);
            case shape::scatter_v: return c.scatter_v(in, out, is_.parts(), rooted);
            case shape::all_to_all_v: return c.all_to_all_v(in, is_.sent(), out, is_.received(), o);
            case shape::shift: return c.sendrecv(in, is_.next(), out, is_.previous(), o);
            case shape::neighbours:
                return c.neighbor_all_to_all_v(is_.graph, in, is_.sent_along(), out, is_.received_along(), o);
            default: return c.barrier(o);
        }
    }
    template <class Group, class In, class Out>
    bool add(Group& g, In& in, Out& out) {
        switch (is_.what) {
            case shape::all_reduce: g.all_reduce(out, op_); break;
            case shape::reduce: g.reduce(out, is_.root, op_); break;
            case shape::broadcast: g.broadcast(out, is_.root); break;
            case shape::scan: g.scan(out, op_); break;
            case shape::exclusive_scan: g.exclusive_scan(out, op_); break;
            case shape::all_gather: g.all_gather(in, out); return true;
            case shape::reduce_scatter: g.reduce_scatter(in, out, op_); return true;
            case shape::all_to_all: g.all_to_all(in, out); return true;
            case shape::shift:
                g.send(in, is_.next());
                g.recv(out, is_.previous());
                return true;
            case shape::neighbours:
                if constexpr (!std::is_same_v<In, std::vector<T>>) return false; // a device_group has none
                else g.neighbor_all_to_all_v(is_.graph, in, is_.sent_along(), out, is_.received_along());
                return true;
            default: return false;
        }
        in_place_ = true;
        return true;
    }

    shape is_;
    bool in_place_ = false;
    std::uint64_t seed_ = 0;
    std::vector<T> in_, out_;
    std::string text_;
    Op op_;
};

template <class T, class Op>
class typed_planned_call final : public planned_call, private planned_numbers<T, Op> {
    using base = planned_numbers<T, Op>;
    using comm = collx::communicator;
    using base::in_, base::out_, base::add, base::call;

public:
    typed_planned_call(const planned_shape& s, bool in_place) : base(s, in_place) { text = this->text_; }

    void fill(std::uint64_t seed) override { base::fill(seed); }
    void make(collx::communicator& c) override { call(at_once<comm>{c}, in_, out_); }
    void make(bound& c) override { call(at_once<bound>{c}, in_, out_); }
    collx::work<void> start(comm& c) override { return call(started<comm>{c}, in_, out_); }
    collx::persistent_call make_ready(comm& c) override { return call(made_ready<comm>{c}, in_, out_); }
    bool add_to(collx::group& g) override { return add(g, in_, out_); }
    bool add_to(collx::persistent::group& g) override { return add(g, in_, out_); }
    void check(const collx::communicator& w) const override { base::check(w); }
};

// Any verb, count and type; most: elements, at most.
inline std::unique_ptr<planned_call> plan_call(int ranks, int rank, std::uint64_t seed, std::size_t most) {
    using shape = planned_shape;
    dice d{seed};
    const auto what = static_cast<shape::verb>(d.below(shape::verbs));
    constexpr std::size_t longest[] = {1, 70, 70, 1500, 1500, 12'000, 12'000, 150'000};
    std::size_t count = d.below(std::min(most, longest[d.below(8)]) + 1);
    if (count > 20'000 && (what == shape::all_to_all || what == shape::all_to_all_v || what == shape::neighbours))
        count /= static_cast<std::size_t>(ranks);
    const bool in_place = d.one_in(2);
    const shape s(what, ranks, rank, count, d.below(1'000'000));
    if (d.one_in(2)) return std::make_unique<typed_planned_call<int, collx::plus>>(s, in_place);
    return std::make_unique<typed_planned_call<affine, then>>(s, in_place);
}

} // namespace collx_test
