// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What protects this job's connections to other hosts, and where its key comes from. The key itself is never shown.
#pragma once

#include <cstring>
#include <string>

#include <collx/bootstrap/host.hpp>
#if COLLX_HAS_SODIUM
#include <collx/interop/sodium.hpp>
#endif
#if COLLX_HAS_OPENSSL
#include <collx/interop/openssl.hpp>
#endif

#include "facts.hpp"

namespace collx::tools::info {

// Errors: collx::error for what a rank would refuse.
inline void add_protection(section& s, findings& out, const job_description& d, const environment& env) {
    found_key k;
    find_key(env, k);
    const bool is_unused = k.is_optional && collx::detail::macs == nullptr;
    const job_protection by = find_protection(env);
    std::string text = name_of(by.level);
    if (by.key)
        text += ": the key comes from " + std::string(k.source) + " (" + by.key.fingerprint("collx_info") +
                "), HMAC by " + collx::detail::macs->name;
    else if (is_unused) text += ": the launcher offers a key, but this program was built without libsodium and OpenSSL";
    else text += ": no key is given";
    s.add("protection", "protection", text,
          {{"level", name_of(by.level)},
           {"key_from", by.key ? nlohmann::ordered_json(k.source) : nlohmann::ordered_json(nullptr)}});
    if (d.size == 1) return;
    collx::detail::require_protection_of_store(d, by.key, env);
    const host_description here = describe_host(env, by, collx::detail::address_of_store(d.store));
    if (!d.store.empty())
        s.add("address", "reached by other hosts at", here.address + " (" + here.why + ")",
              {{"address", here.address}, {"why", here.why}});
    if (!by.key && env.get("COLLX_INSECURE") != nullptr && env.get("COLLX_INSECURE")[0] == '1')
        out.problems.push_back(
            {"COLLX_INSECURE=1: any host that reaches the ranks' ports and knows the job's name can join",
             "give the job a key, see docs/security.md"});
}

} // namespace collx::tools::info
