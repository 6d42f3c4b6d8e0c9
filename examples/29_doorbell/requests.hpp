// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a program requests from a card and gets back from it, what travels between cards, and what all of it costs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lesson {

// In ns, and bytes per ns.
struct costs {
    double request = 40;  // the processor fills in a request
    double doorbell = 20; // and stores 8 bytes to the card, which leave at once
    double pcie = 300;    // one way
    double wire = 600;    // one way, with a switch
    double poll = 60;     // a look at a completion queue, whose entry comes from memory
    double pcie_rate = 25, wire_rate = 12.5;
};

struct work_request {
    enum class kind : std::uint8_t { write, send };
    kind what = kind::write;
    bool is_signalled = false, is_inline = false;
    std::uint64_t id = 0;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    std::uint32_t local_key = 0;
    std::byte* to = nullptr; // write: in the peer's memory
    std::uint32_t remote_key = 0;
};
struct completion {
    enum class status : std::uint8_t { success, local_protection, remote_access, no_receive, flushed };
    std::uint64_t id = 0;
    bool is_receive = false;
    std::size_t bytes = 0;
    status how = status::success;
    double at_ns = 0;
};
// What travels between cards (packet), and what comes back for it (answer).
struct packet {
    static constexpr std::size_t most_bytes = 1024;
    work_request::kind what = work_request::kind::write;
    std::uint64_t to = 0, place = 0;
    std::uint32_t key = 0;
    std::uint32_t bytes = 0;
    double at_ns = 0;
    std::array<std::byte, most_bytes> data{};
};
struct answer {
    std::uint64_t place = 0;
    completion::status how = completion::status::success;
    double at_ns = 0;
};
// Counts what crosses PCIe.
struct crossings {
    int doorbells = 0, request_reads = 0, data_reads = 0, data_writes = 0, completions = 0;
    bool operator==(const crossings&) const = default;
};
struct step {
    double begin, end;
    char mark; // for the picture
    std::string text;
};

} // namespace lesson
