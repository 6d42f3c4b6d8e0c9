// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Work that all ranks do at once and in which any of them may fail: each tries, and all learn who could not.
#pragma once

#include <exception>

#include <collx/job/communicator_core.hpp>

COLLX_BEGIN_NAMESPACE
namespace detail {

struct attempted {
    std::exception_ptr mine; // what f has thrown here; null: nothing
    int first = -1;          // the lowest rank whose f has thrown; -1: none
    errc why{};              // what that rank's error says, `resource` for an exception that is no collx::error
};

// Runs f on every rank. Collective; throws nothing of f. Errors: those of a small collective call.
template <class F>
attempted try_together(communicator_core& c, F&& f) {
    attempted a;
    std::int32_t code = -1;
    try {
        f();
    } catch (const error& e) {
        a.mine = std::current_exception();
        code = static_cast<std::int32_t>(e.code());
    } catch (...) { // the other ranks wait
        a.mine = std::current_exception();
        code = static_cast<std::int32_t>(errc::resource);
    }
    c.exchange_each(code, [&](int r, std::int32_t its) {
        if (its >= 0 && a.first < 0) {
            a.first = r;
            a.why = static_cast<errc>(its);
        }
    });
    return a;
}

// Runs f on every rank. Throws on all ranks if one rank could not: there what f has thrown, on the others an error
// that names that rank and `what` it could not do.
template <class F>
void together(communicator_core& c, const char* what, F&& f) {
    const attempted a = try_together(c, f);
    if (a.mine) std::rethrow_exception(a.mine);
    if (a.first >= 0)
        fail(a.why, c.net.rank(), a.first, "see what that rank says", "rank %d could not %s", a.first, what);
}

} // namespace detail
COLLX_END_NAMESPACE
