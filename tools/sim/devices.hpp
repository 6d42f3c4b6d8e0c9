// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// `collx_sim devices`: which algorithm a call on device memory takes on a machine, and the times of it and the others.
#pragma once

#include <collx/comm/explain_devices.hpp>

#include <string>
#include <vector>

namespace collx::tools {

/// Returns the explanation for the collective of that name.
inline explanation explain_devices(sim::fabric& f, const std::string& op, std::size_t bytes,
                                   const device_explain_options& o) {
    explanation e{};
    std::string names;
    const auto offer = [&]<collective C>() {
        names += std::string(" ") + name_of(C);
        if (op == name_of(C)) e = explain_on_devices<C>(f, bytes, o);
    };
    using enum collective;
    offer.operator()<all_reduce>();
    offer.operator()<reduce>();
    offer.operator()<broadcast>();
    offer.operator()<all_gather>();
    offer.operator()<reduce_scatter>();
    offer.operator()<gather>();
    offer.operator()<scatter>();
    offer.operator()<all_to_all>();
    offer.operator()<scan>();
    offer.operator()<exclusive_scan>();
    if (e.candidates.empty())
        fail(errc::invalid_argument, -1, -1, ("there are" + names).c_str(), "no collective is called '%.100s'",
             op.c_str());
    return e;
}

} // namespace collx::tools
