// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers in the files of NCCL: attributes with their line, and the rates that their values stand for.
#pragma once

#include <cstdlib>
#include <string>

#include <collx/core/decimal.hpp>
#include <collx/topo/machine_parts.hpp>
#include <collx/topo/xml.hpp>

COLLX_BEGIN_NAMESPACE
namespace topo::detail {

// Attributes of one element of a file.
struct attributes_of {
    const xml_element& e;
    const std::string& file;

    [[noreturn]] void wrong(const std::string& what, const char* remedy) const {
        fail_at(file, e.line, remedy, "<" + e.name + ">: " + what);
    }
    std::string needed(const char* name) const {
        const std::string* v = e.find(name);
        if (v == nullptr) wrong(std::string("the attribute '") + name + "' is missing", "add it");
        return *v;
    }
    void no_content() const {
        if (!e.children.empty())
            attributes_of{e.children[0], file}.wrong("not known in <" + e.name + ">", "nothing is inside of it");
    }
    // An integer, hexadecimal after 0x; `if_none` where the attribute is missing or empty.
    int number(const char* name, int if_none, int least, int most) const {
        const std::string* v = e.find(name);
        if (v == nullptr || v->empty()) return if_none;
        char* end = nullptr;
        const long n = std::strtol(v->c_str(), &end, v->compare(0, 2, "0x") == 0 ? 16 : 10);
        if (*end != '\0' || n < least || n > most)
            wrong(std::string(name) + "=\"" + *v + "\"",
                  ("give a number from " + std::to_string(least) + " to " + std::to_string(most)).c_str());
        return static_cast<int>(n);
    }
    double rate(const char* name, double if_none) const {
        const std::string* v = e.find(name);
        if (v == nullptr || v->empty()) return if_none;
        double n = 0;
        if (!collx::detail::read_decimal(*v, n))
            wrong(std::string(name) + "=\"" + *v + "\" is no number", "give a rate with a decimal point");
        if (!(n >= 0) || n > 1e12) wrong(std::string(name) + "=\"" + *v + "\"", "give a rate that is not negative");
        return n;
    }
};

// GB/s of a PCIe link. NCCL counts units of 100 Mbit/s a lane (60 for an unknown speed). Published rates are 21/16 of
// NCCL's: at 8 GT/s x16, 15.75 and 12.
inline double pcie_rate(const std::string& speed, int width, rate_basis basis) {
    static constexpr std::pair<const char*, int> known[] = {{"2.5", 15},   {"5", 30},    {"5.0", 30},   {"8", 60},
                                                            {"8.0", 60},   {"16", 120},  {"16.0", 120}, {"32", 240},
                                                            {"32.0", 240}, {"64.0", 480}};
    int per_lane = 60;
    for (const auto& [word, units] : known)
        if (speed == std::string(word) + " GT/s" || speed == std::string(word) + " GT/s PCIe") per_lane = units;
    const double counted = (width == 0 ? 16 : width) * per_lane / 80.0;
    return basis == rate_basis::nccl ? counted : counted * 21 / 16;
}
// GB/s of one NVLink of a GPU of compute capability sm (NCCL 2.30 src/graph/topo.h; data sheets).
inline double nvlink_rate(int sm, rate_basis basis) {
    const bool raw = basis == rate_basis::published;
    if (sm >= 100) return raw ? 50 : 40.1;
    if (sm >= 90) return raw ? 25 : 20.6;
    if (sm == 86) return raw ? 14 : 12;
    if (sm >= 70) return raw ? 25 : 20;
    return raw ? 20 : 18;
}
// From this compute capability on, the NVSwitches of GPUs that have some reduce and multicast.
constexpr int first_multicast_sm = 90;
// GB/s between CPUs (same source).
inline double socket_rate(const std::string& arch, const std::string& vendor, int model) {
    if (arch == "arm64") return 6;
    if (arch == "ppc64") return 32;
    if (vendor == "AuthenticAMD") return 16;
    if (vendor != "GenuineIntel") return 6;
    return model >= 207 ? 40 : model >= 143 ? 22 : model >= 85 ? 10 : 6;
}

} // namespace topo::detail
COLLX_END_NAMESPACE
