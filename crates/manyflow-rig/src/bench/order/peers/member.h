/* A member of a group of another program: sends and receives, and prints what it measured.
 *
 * It prints `ready`, and reads a line with two times (CLOCK_MONOTONIC in nanoseconds). From then on
 * it sends, as fast as it can or at a rate, until the second time. It counts the messages that it
 * sends and receives between the times, and measures the latency of those that were sent between
 * them. When the last messages of all members have come, it prints one line of JSON.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MEMBERS_MAX 16
#define LATENCIES_MAX (1 << 20)
/* The time for the last messages to arrive. */
#define END_LIMIT_S 20

/* The beginning of a message. */
struct stamp {
	uint32_t sender;
	uint32_t is_last;
	uint64_t number;
	uint64_t sent_ns;
};

static struct {
	uint32_t self, members;
	size_t size;
	/* Messages of this member per second; 0: as fast as possible. */
	double rate;
	/* The maximum number of own messages under way; 0: no limit. */
	uint64_t window;
	volatile uint64_t from_ns, until_ns;
	uint64_t next[MEMBERS_MAX], sent, delivered, wrong, digest;
	volatile uint64_t own_delivered;
	volatile uint32_t ended;
	uint64_t latencies[LATENCIES_MAX];
	size_t latency_count;
	/* Only messages at a rate carry a time that counts. */
	int is_timed;
} member;

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void pause_ns(uint64_t ns)
{
	struct timespec time = {ns / 1000000000ull, ns % 1000000000ull};
	nanosleep(&time, NULL);
}

/* Prints an error and ends the program. */
static void fail(const char *what, int code)
{
	fprintf(stderr, "%s: error %d\n", what, code);
	exit(1);
}

/* Counts a message that has arrived. */
static void handle_message(const void *bytes, size_t length)
{
	struct stamp stamp;
	uint64_t now = now_ns();
	if (length < sizeof stamp)
		fail("a short message", (int)length);
	memcpy(&stamp, bytes, sizeof stamp);
	if (stamp.sender >= member.members)
		fail("a message of a stranger", (int)stamp.sender);
	if (stamp.number != member.next[stamp.sender])
		member.wrong++;
	member.next[stamp.sender] = stamp.number + 1;
	member.digest = (member.digest ^ (stamp.number * MEMBERS_MAX + stamp.sender)) * 1099511628211ull;
	if (stamp.sender == member.self)
		member.own_delivered++;
	if (now >= member.from_ns && now < member.until_ns)
		member.delivered++;
	if (member.is_timed && stamp.sent_ns >= member.from_ns && !stamp.is_last && member.latency_count < LATENCIES_MAX)
		member.latencies[member.latency_count++] = now - stamp.sent_ns;
	if (stamp.is_last)
		member.ended++;
}

/* Sends a message. Waits while the program takes none. */
static void send_message(const void *bytes, size_t length);

static void send_load(void)
{
	char *bytes = calloc(1, member.size);
	uint64_t number = 0, start = now_ns(), now;
	for (;;) {
		struct stamp stamp = {member.self, 0, number, 0};
		if (member.rate > 0) {
			uint64_t turn = 1e9 / (member.rate * member.members) * member.self;
			uint64_t due = start + turn + (uint64_t)(number * 1e9 / member.rate);
			now = now_ns();
			if (due > now)
				pause_ns(due - now);
		}
		while (member.window && number - member.own_delivered >= member.window && now_ns() < member.until_ns)
			pause_ns(20000);
		now = now_ns();
		stamp.is_last = now >= member.until_ns;
		stamp.sent_ns = now;
		memcpy(bytes, &stamp, sizeof stamp);
		send_message(bytes, member.size);
		number++;
		if (stamp.is_last)
			break;
		member.sent += now >= member.from_ns;
	}
	free(bytes);
}

/* Waits for the times, sends, waits for the last messages, and prints the results. */
static void *run_load(void *unused)
{
	unsigned long long from, until;
	(void)unused;
	printf("ready\n");
	fflush(stdout);
	if (scanf("%llu %llu", &from, &until) != 2)
		fail("no times", 0);
	member.until_ns = until;
	member.from_ns = from;
	send_load();
	for (int wait = 0; member.ended < member.members && wait < END_LIMIT_S * 1000; wait++)
		pause_ns(1000000);
	printf("{\"sent\":%llu,\"delivered\":%llu,\"wrong\":%llu,\"digest\":\"%016llx\",\"latencies_ns\":[",
	       (unsigned long long)member.sent, (unsigned long long)member.delivered,
	       (unsigned long long)(member.wrong + member.members - member.ended), (unsigned long long)member.digest);
	for (size_t place = 0; place < member.latency_count; place++)
		printf("%s%llu", place ? "," : "", (unsigned long long)member.latencies[place]);
	printf("]}\n");
	fflush(stdout);
	/* The other members may still wait for messages through this one. */
	while (getchar() != EOF)
		;
	exit(0);
}

/* Begins the load in a thread of its own. */
static void start_load(void)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, run_load, NULL);
	if (error)
		fail("pthread_create", error);
}

/* Reads the arguments: this member's number, the number of members, the bytes of a message, the
 * rate of each member, and the window. */
static void read_arguments(char **arguments)
{
	member.self = atoi(arguments[1]);
	member.members = atoi(arguments[2]);
	member.size = atoi(arguments[3]);
	member.rate = atof(arguments[4]);
	member.window = atoi(arguments[5]);
	member.is_timed = member.rate > 0;
	member.from_ns = member.until_ns = UINT64_MAX;
}
