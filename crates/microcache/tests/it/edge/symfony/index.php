<?php
// A Symfony kernel whose page renders fragments as FrameworkBundle does: the same renderers, listeners and signatures. It runs by php -S, or
// by php-fpm.
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\{Cookie, Request, RequestStack, Response};
use Symfony\Component\HttpKernel\Controller\{ArgumentResolver, ControllerReference, ControllerResolver};
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\EventListener\{FragmentListener, SurrogateListener};
use Symfony\Component\HttpKernel\Fragment\{EsiFragmentRenderer, FragmentHandler, InlineFragmentRenderer};
use Symfony\Component\HttpKernel\HttpCache\Esi;
use Symfony\Component\HttpKernel\{HttpKernel, KernelEvents, UriSigner};

require '/usr/share/php/Symfony/Component/HttpKernel/autoload.php';

$stack = new RequestStack();
$dispatcher = new EventDispatcher();
$kernel = new HttpKernel($dispatcher, new ControllerResolver(), $stack, new ArgumentResolver());
$signer = new UriSigner('a secret of the application');
$inline = new InlineFragmentRenderer($kernel, $dispatcher);
$fragments = new FragmentHandler($stack, [$inline, new EsiFragmentRenderer(new Esi(), $inline, $signer)]);
$dispatcher->addSubscriber(new FragmentListener($signer));
$dispatcher->addSubscriber(new SurrogateListener(new Esi()));
$dispatcher->addListener(KernelEvents::REQUEST, function (RequestEvent $event) {
    $path = $event->getRequest()->getPathInfo();
    if ($path !== '/_fragment') {
        $event->getRequest()->attributes->set('_controller', $path === '/account' ? 'account' : 'page');
    }
});

function render(string $controller, array $attributes = [], array $options = []): string
{
    return $GLOBALS['fragments']->render(new ControllerReference($controller, $attributes), 'esi', $options);
}

function shared(string $text): Response
{
    return (new Response($text))->setPublic()->setSharedMaxAge(600);
}

function visitor(Request $request): string
{
    return htmlspecialchars($request->cookies->get('session', 'nobody'));
}

function page(): Response
{
    $broken = render('broken', [], ['alt' => new ControllerReference('menu'), 'ignore_errors' => true]);
    return shared('<html><body>'.render('menu').'|'.render('cart', ['item' => 5]).'|'.$broken.'</body></html>');
}

function account(Request $request): Response
{
    return new Response('<p>'.visitor($request).'</p>'.render('menu'));
}

function menu(): Response
{
    return shared('menu '.render('badge'));
}

function badge(Request $request): Response
{
    return new Response('('.visitor($request).')');
}

function cart(Request $request, int $item): Response
{
    $response = new Response("cart of ".visitor($request)." with $item");
    $response->headers->setCookie(Cookie::create('seen', '1'));
    return $response;
}

function broken(): Response
{
    return new Response('down', 503);
}

$request = Request::createFromGlobals();
try {
    $response = $kernel->handle($request);
} catch (Throwable $error) {
    $response = new Response(get_class($error), $error instanceof Symfony\Component\HttpKernel\Exception\HttpExceptionInterface ? $error->getStatusCode() : 500);
}
$response->headers->set('X-Tags', substr_count((string) $response->getContent(), '<esi:include'));
$response->prepare($request)->send();
