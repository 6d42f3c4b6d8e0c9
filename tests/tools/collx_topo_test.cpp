// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// collx_topo run as a program: its output for known machines, for files and for trees of /sys, and what it refuses.
#include <cstdio>
#include <fstream>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

using Catch::Contains;

namespace {

struct result {
    int code;
    std::string text;
};
result topo(const std::string& arguments) {
    std::FILE* p = ::popen((COLLX_TOOL_DIR "/collx_topo 2>&1 " + arguments).c_str(), "r");
    if (p == nullptr) return {-1, ""};
    std::string text;
    for (char part[4096]; const std::size_t n = std::fread(part, 1, sizeof part, p);) text.append(part, n);
    const int status = ::pclose(p);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

} // namespace

TEST_CASE("collx_topo prints machines, paths with reasons, rings and pictures") {
    CHECK_THAT(topo("-m dgx-1v tree").text, Contains("CPU0; to CPU1") && Contains("    GPU0, PCIe 15.75 GB/s; to"));
    CHECK_THAT(topo("-m dgx-a100 matrix").text, Contains("GPU0\t X \tNV12") && Contains("\tPXB\t"));
    CHECK_THAT(topo("-m dgx-1v path GPU0 GPU5").text, Contains("NVB, 25 GB/s") && Contains("no NVLink joins them"));
    CHECK_THAT(topo("-m dgx-1v rings").text, Contains("6 rings of 25 GB/s: 150 GB/s") && Contains("bottleneck"));
    CHECK_THAT(topo("-m dgx-1v rings --ranks 0,2,4,6 --once").text, Contains("(GPU"));
    CHECK_THAT(topo("-m dgx-h100 --hosts 2 --nic 50 rings").text,
               Contains("8 rings of 50 GB/s: 400 GB/s of at most 400"));
    CHECK_THAT(topo("-m dgx-h100 --hosts 2 rings").text, Contains("400 GB/s of at most 400")); // by its cards' ports
    CHECK_THAT(topo("-m dgx-1v dot").text,
               Contains("graph machine {") && Contains("\"GPU0\" -- \"GPU3\" [label=\"NVLink 50\"]"));
    CHECK_THAT(topo("-m dgx-1v svg").text, Contains("<svg ") && Contains("</svg>"));
    CHECK_THAT(topo("-m dgx-1v nccl-graph").text, Contains("nchannels=\"6\""));
    CHECK_THAT(topo("-m dgx-h100 tree").text, Contains("NVSwitch, 8 links, 4 chips, reduces and multicasts\n"));
    CHECK_THAT(topo("-m dgx-a100 tree").text, Contains("NVSwitch, 8 links, 6 chips\n"));
    CHECK_THAT(topo("-m fat-tree rings").text, Contains("12.5 GB/s of at most 12.5"));
    CHECK(topo("tree").code == 0); // this machine
}

TEST_CASE("-f takes files of hwloc, too") {
    const std::string file = "/tmp/collx-topo-" + std::to_string(::getpid()) + ".xml";
    std::ofstream(file)
        << "<?xml version=\"1.0\"?><!DOCTYPE topology SYSTEM \"hwloc2.dtd\"><topology version=\"2.0\">\n"
           "<object type=\"Machine\"><object type=\"NUMANode\" os_index=\"0\"/>\n"
           "<object type=\"Bridge\" bridge_type=\"0-1\"><object type=\"PCIDev\" pci_busid=\"0000:00:02.0\" "
           "pci_type=\"0302 [10de:20b0]\"/></object></object></topology>\n";
    CHECK_THAT(topo("-f " + file + " tree").text, Contains("GPU0, PCIe 15.75 GB/s"));
    CHECK(topo("--nccl-rates -f " + file + " tree").code == 2);
    CHECK_THAT(topo("-f " + file + " nccl-topology").text, Contains("<system version=\"1\">") && Contains("<gpu "));
    // Its outermost element says what it is, whatever a comment names.
    std::ofstream(file) << "<!-- made from a <system> of NCCL --><topology version=\"2.0\">"
                           "<object type=\"Machine\"><object type=\"NUMANode\" os_index=\"0\"/></object></topology>";
    CHECK(topo("-f " + file + " tree").text == "CPU0\n");
    std::ofstream(file) << "<!-- from a <topology> of hwloc -->" + topo("-m dgx-1v nccl-topology").text;
    CHECK_THAT(topo("-f " + file + " rings").text, Contains("6 rings of 25 GB/s"));
    std::ofstream(file) << "<topology version=\"1.0\"/>";
    const result old = topo("-f " + file + " tree");
    CHECK(old.code == 1);
    CHECK_THAT(old.text, Contains(file + ":1: ") && Contains("hwloc 2 or later"));
    ::unlink(file.c_str());
}

TEST_CASE("what it writes it reads, and what is wrong it refuses") {
    const std::string file = "/tmp/collx-topo-" + std::to_string(::getpid()) + ".xml";
    std::ofstream(file) << topo("-m dgx-1v nccl-topology --sm 70").text;
    CHECK_THAT(topo("-f " + file + " rings").text, Contains("6 rings of 25 GB/s"));
    std::ofstream(file) << topo("-m hgx-b200 nccl-topology").text;
    CHECK_THAT(topo("-f " + file + " path GPU0 GPU1").text, Contains("NVL, 900 GB/s"));
    std::ofstream(file) << "<system version=\"1\">\n<cpu>\n</system>";
    const result broken = topo("-f " + file + " tree");
    CHECK(broken.code == 1);
    CHECK_THAT(broken.text, Contains(file + ":3:") && Contains("close them in order"));
    ::unlink(file.c_str());
    const auto ends = [](int code, const std::string& arguments) {
        CAPTURE(arguments);
        const result r = topo(arguments);
        CHECK(r.code == code);
        return r.text;
    };
    CHECK_THAT(ends(1, "-f " + file + " tree"), Contains("no file"));
    CHECK_THAT(ends(1, "matrix --read " + file), Contains("no file"));
    CHECK_THAT(ends(2, "-m toaster tree"), Contains("no machine is called 'toaster'") && Contains("dgx-1v"));
    CHECK_THAT(ends(2, "-m dgx-1v path GPU0 GPU9"), Contains("no site 'GPU9'"));
    CHECK_THAT(ends(2, "-m dgx-1v rings --ranks 0,9"), Contains("rank 9 of a machine for 8 ranks"));
    CHECK_THAT(ends(2, "-m dgx-1v svg --ranks 9"), Contains("rank 9 of a machine for 8 ranks"));
    CHECK_THAT(ends(2, "-m dgx-1v rings --ranks 3,3"), Contains("rank 3 is named twice"));
    CHECK_THAT(ends(1, "-f /etc tree"), Contains("'/etc' cannot be read"));
    CHECK_THAT(ends(1, "matrix --read /etc"), Contains("'/etc' cannot be read"));
    CHECK_THAT(ends(1, "--sysfs /no/such/folder tree"), Contains("no directory '/no/such/folder'"));
    CHECK_THAT(ends(2, "-m dgx-h100 --hosts 2 nccl-topology"), Contains("write a file for each host"));
    CHECK_THAT(ends(2, "-m torus nccl-graph"), Contains("passes through no GPU"));
    CHECK_THAT(ends(2, "-m dgx-1v --hosts 2 --nic nan tree"), Contains("a rate of"));
    CHECK_THAT(ends(2, "-m dgx-1v --nic 50 tree"), Contains("there is one host (add --hosts"));
    CHECK_THAT(ends(2, "-m dgx-1v -f x.xml tree"), Contains("more than one machine (give one of"));
    CHECK_THAT(ends(2, "-m dgx-1v --sysfs /tmp tree"), Contains("more than one machine"));
    CHECK_THAT(ends(2, "--nccl-rates tree"), Contains("the rates that its system reports (name a machine"));
    for (const char* machine : {"-m dgx-1v", "-f x.xml", "--sysfs /tmp", "--hosts 2", "--nccl-rates"})
        CHECK_THAT(ends(2, machine + std::string(" matrix --read x.txt")), Contains(" excludes --read"));
    CHECK_THAT(ends(2, "-m dgx-1v nccl-topology --sm 0"), Contains("--sm"));
    CHECK_THAT(ends(1, "-m dgx-1v tree > /dev/full"), Contains("standard output is not complete: No space left"));
    CHECK_THAT(ends(0, "-m dgx-1v --hosts 2 nccl-graph --ranks 8,9"), Contains("<gpu dev=\"1\"/>"));
    const std::string long_name(300, 'x');
    CHECK_THAT(ends(1, "--sysfs /tmp/" + long_name + " tree"),
               Contains("no directory '/tmp/xxx") && Contains("too long"));
    CHECK_THAT(ends(1, "-f /tmp/" + long_name + " tree"), Contains("no file '/tmp/xxx"));
    CHECK_THAT(ends(2, "-m '' tree"), Contains("--machine: an empty value"));
    CHECK_THAT(ends(2, "-f '' tree"), Contains("--file: an empty value"));
    CHECK_THAT(ends(2, "-m dgx-1v matrix --read ''"), Contains("--read: an empty value"));
    CHECK_THAT(ends(2, "-m dgx-1v rings --ranks 0,0x2"), Contains("'0x2' is not decimal"));
    CHECK_THAT(ends(2, "-m dgx-1v rings --ranks 010,02"), Contains("rank 10 of a machine for 8 ranks"));
    for (const char* wrong : {"-m dgx-1v", "--no-such-option tree", "--hosts 0 tree", "tree too many"}) {
        CAPTURE(wrong);
        CHECK(topo(wrong).code == 2);
        CHECK_THAT(topo(wrong).text, Contains("collx_topo --help"));
    }
    CHECK(topo("--help").code == 0);
    CHECK_THAT(topo("rings --help").text, Contains("--ranks"));
}
