// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// clang-format off
// expect: collx: this call goes on after its line, until wait() or launch(), and one of its buffers is a temporary that is gone by then. Keep it in a variable, or pass a view of memory that stays.
// expect: detail::broadcast_fn<Mode>::operator()(
// expect: detail::all_gather_fn<Mode>::operator()(
// expect: detail::gather_fn<Mode>::operator()(
// expect: detail::scatter_v_fn<Mode>::operator()(
// expect: detail::all_to_all_v_fn<Mode>::operator()(
// expect: detail::all_reduce_fn<Mode>::operator()(
// expect: detail::reduce_fn<Mode>::operator()(
// expect: detail::scan_fn<Mode, Kind>::operator()(
// expect: Kind = collx::v0::collective::scan
// expect: Kind = collx::v0::collective::exclusive_scan
// expect: detail::reduce_scatter_fn<Mode>::operator()(
// expect: detail::message_fn<Mode, Outgoing, UntilTaken>::operator()(
// expect: group::broadcast(X&&
// clang-format on
#include <collx/collx.hpp>

#include <array>
#include <span>
#include <string_view>
#include <vector>

namespace async = collx::async;

// Who owns nothing may be a temporary.
void views(collx::communicator& world, std::vector<float>& x, std::vector<float>& y) {
    async::broadcast(world, std::span(x)).wait();
    async::broadcast(world, collx::view(x.data(), 3)).wait();
    async::send(world, collx::strided(x.data(), 3, 2), 1).wait();
    async::send(world, std::string_view("abc"), 1).wait();
    async::recv(world, collx::value(x[0]), 1).wait();
    async::all_gather(world, collx::in_place(x)).wait();
    async::scan(world, std::span<const float>(x), y, collx::plus{}).wait();
    async::all_to_all_v(world, std::span(x), std::vector<int>{1, 2}, std::span(y), std::vector<int>{1, 2}).wait();
    collx::group g(world);
    g.all_reduce(std::span(x));
    g.launch();
    // What is done at once may have temporaries, and all_reduce in place keeps what it is given.
    collx::all_gather(world, std::vector<float>(1), y);
    const std::vector<float> sum = async::all_reduce(world, std::vector<float>(10)).wait();
    (void)sum;
}

#ifdef COLLX_FAIL
template <int K>
struct element {
    int x;
};
template <int K>
using vec = std::vector<element<K>>;

void owners(collx::communicator& world, vec<2>& x, vec<9>& y, std::vector<int>& n) {
    async::broadcast(world, vec<1>(10)).wait();
    async::all_gather(world, vec<2>(1), x).wait();
    async::all_gather(world, vec<3>(2)).wait();
    async::gather(world, std::array<element<4>, 2>{}, vec<4>(4)).wait();
    async::scatter_v(world, vec<5>(2), vec<5>(1), std::vector<int>{1, 1}).wait();
    async::all_to_all_v(world, y, n, vec<9>(2), n).wait();
    async::send(world, vec<6>(1), 1).wait();
    async::recv(world, vec<7>(1), 1).wait();
    async::all_reduce(world, std::vector<float>(2), std::vector<float>(2)).wait();
    async::reduce(world, std::vector<double>(2)).wait();
    async::scan(world, std::vector<long>(2)).wait();
    async::exclusive_scan(world, std::vector<short>(2)).wait();
    async::reduce_scatter(world, std::vector<char>(2)).wait();
    collx::group g(world);
    g.broadcast(vec<8>(1), 0);
}
#endif

int main() {}
