package driver;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/** What this process has taken of the machine. */
final class Process {
    private static final long PAGE = 4096;
    private static final int COLLECTIONS = 3;

    private Process() {}

    /** CPU time, all threads, so far. */
    static long cpuNanos() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** The bytes of the heap that are in use after it was collected. */
    static long liveBytes() {
        for (int number = 0; number < COLLECTIONS; number++) {
            System.gc();
        }
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    static long residentBytes() throws IOException {
        return Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]) * PAGE;
    }
}
