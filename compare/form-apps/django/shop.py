"""A Django application with the middleware of new projects: a page, a form in its foot, messages and a sign-in."""

from pathlib import Path

from django.conf import settings
from django.contrib import messages
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.middleware.csrf import get_token, rotate_token
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

settings.configure(
    SECRET_KEY="k" * 50,
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.sessions", "django.contrib.messages"],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.locale.LocaleMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    TEMPLATES=[{
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [Path(__file__).parent / "templates"],
        "OPTIONS": {"context_processors": ["django.template.context_processors.request", "django.contrib.messages.context_processors.messages"]},
    }],
)


def page(request):
    return render(request, "page.html", {"heading": request.path})


def contact(request):
    if request.method == "POST":
        messages.success(request, f"Thanks for {request.POST['text']}")
        return redirect("/")
    return page(request)


def login(request):
    if request.method == "POST":
        request.session.cycle_key()
        request.session["name"] = request.POST["text"]
        rotate_token(request)
        return redirect("/")
    return page(request)


@require_POST
def logout(request):
    request.session.flush()
    return redirect("/")


# guide: view
@never_cache
def csrf_token(request):
    return HttpResponse(get_token(request), content_type="text/plain")
# end


urlpatterns = [path("", page), path("contact", contact), path("login", login), path("logout", logout), path("csrf-token", csrf_token)]
application = get_wsgi_application()
