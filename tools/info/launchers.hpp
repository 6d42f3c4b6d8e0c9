// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says which launcher's variables are in an environment: why one was found, which others were there too, and what is
// wrong with an incomplete set.
#pragma once

#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include <collx/bootstrap/environment.hpp>
#include <collx/bootstrap/protection.hpp>

#include "facts.hpp"

namespace collx::tools::info {

/// The variables of a probe that are set, as NAME=value, and those that are not.
struct wanted_variables {
    std::string set, absent;
    wanted_variables(const bootstrap_probe& p, const environment& env) {
        collx::detail::each_wanted(p, [&](const std::string& name) {
            const char* value = env.get(name.c_str());
            std::string& list = value != nullptr ? set : absent;
            list += (list.empty() ? "" : ", ") + name;
            if (value != nullptr) list += "=" + std::string(collx::detail::printable(value).text);
        });
    }
};

inline std::string why_found(const job_description& d, const environment& env) {
    std::string text = std::string(d.found_by) + ": ";
    for (const auto& p : bootstrap_probes)
        if (std::strcmp(p.found_by, d.found_by) == 0) {
            const wanted_variables v(p, env);
            text += v.set.empty() ? "no launcher's variables are set, so this process is a job of its own" : v.set;
        }
    if (env.get("COLLX_BOOTSTRAP") != nullptr) text += " (COLLX_BOOTSTRAP says so)";
    return text;
}

/// Adds the other launchers whose variables are complete: they are asked later, or overruled.
inline void add_losers(section& s, const job_description& d, const environment& env) {
    std::string text;
    auto names = nlohmann::ordered_json::array();
    for (const auto& p : bootstrap_probes) {
        if (p.wanted[0] == '\0' || std::strcmp(p.found_by, d.found_by) == 0 || !p.recognises(env)) continue;
        text += (text.empty() ? "" : "; ") + std::string(p.found_by) + " (" + wanted_variables(p, env).set + ")";
        names.push_back(p.found_by);
    }
    if (text.empty()) text = "no other launcher's variables";
    else
        text += env.get("COLLX_BOOTSTRAP") != nullptr ? ", lost to COLLX_BOOTSTRAP"
                                                      : ", lost: outer launchers are asked last";
    s.add("also_there", "also there", text, names);
}

/// Reports incomplete sets of variables, for a process that is alone now and may not have been meant to be.
inline void find_half_sets(findings& out, const environment& env) {
    const struct {
        const char *found_by, *remedy;
    } remedies[] = {
        {"PMI", "start the ranks with mpiexec or srun --mpi=pmi2 directly, so that they inherit PMI_FD"},
        {"PMIx", "start the ranks with mpirun, prterun or srun --mpi=pmix directly"},
        {"torch variables", "set all of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or use torchrun"},
        {"Slurm", "a batch script's body is one process: start the ranks with srun"},
        {"Kubernetes", "set COLLX_SIZE and COLLX_STORE in the job file, unless each pod is meant to be alone"},
    };
    for (const auto& p : bootstrap_probes)
        for (const auto& r : remedies) {
            if (std::strcmp(p.found_by, r.found_by) != 0) continue;
            const wanted_variables v(p, env);
            const char* tasks = env.get("SLURM_NTASKS");
            const bool is_single =
                r.found_by == std::string("Slurm") && (tasks == nullptr || std::strcmp(tasks, "1") == 0);
            if (v.set.empty() || p.recognises(env) || is_single) continue;
            out.problems.push_back({"this process is alone although " + v.set + " is set" +
                                        (v.absent.empty() ? ", which is not a rank's" : ": " + v.absent + " not"),
                                    r.remedy});
        }
}

/// Whether ranks without COLLX_ADDRESS listen on their route to the store.
inline bool is_towards_store(const job_description& d) {
    const std::string at = collx::detail::address_of_store(d.store);
    return !at.empty() && !collx::detail::numeric_address(at, 0).is_loopback();
}

/// Reports what would stop a job of several ranks before they connect.
inline void find_launcher_problems(findings& out, const job_description& d, const environment& env) {
    if (d.found_by == std::string("alone") && env.get("COLLX_BOOTSTRAP") == nullptr) find_half_sets(out, env);
    const std::string here =
        "only " + std::to_string(d.local_size) + " of " + std::to_string(d.size) + " ranks are on this host";
    if (d.local_size < d.size && d.store.empty())
        out.problems.push_back(
            {here + ", and a job without a store cannot exchange addresses between hosts", d.remedy, true});
    else if (d.local_size < d.size && env.get("COLLX_ADDRESS") == nullptr && env.get("COLLX_HOST_ID") == nullptr &&
             !is_towards_store(d))
        out.problems.push_back(
            {here + ", and nothing says where others can reach this one",
             "set COLLX_ADDRESS to this host's own address, and give the job a key, see docs/security.md", true});
    if (!d.store.starts_with("pmi:") || d.size == 1 || !d.pmi_port.empty()) return;
    int type = 0;
    socklen_t bytes = sizeof type;
    if (::getsockopt(std::atoi(d.store.c_str() + 4), SOL_SOCKET, SO_TYPE, &type, &bytes) != 0)
        out.problems.push_back({"PMI_FD=" + d.store.substr(4) + " is not a socket of a process manager",
                                "start this process by mpiexec or srun directly, or set COLLX_BOOTSTRAP=single", true});
}

} // namespace collx::tools::info
